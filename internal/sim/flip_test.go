package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Bits flip in the memory of a minority of the voters, and of standbys. A member with a
// flipped bit is tainted: its program has terminated, as its outcomes are not the
// group's, and it takes part in the group until it stops by itself. Checked is that
// only tainted members stop, and that each one whose state differs does so once a majority
// of the others is up.

// flipBit flips a bit in the state of a member's machine, if the others can spare it.
func (sim *simulation) flipBit(m *simMember) bool {
	proc := m.process
	if proc == nil || m.tainted || m.destroyed || len(sim.history.durableState) == 0 || proc.core.Status().Applied != sim.history.last() || !sim.mayTaint(m) {
		return false
	}
	flipped, what := sim.flippedMachine()
	if flipped == nil {
		return false
	}
	sim.trace("a bit flips in the memory of member %d: %s", m.n, what)
	sim.flips++
	m.tainted = true
	proc.program.terminate()
	proc.serving.ended() // what it delivers would not be the group's
	proc.core.Machine().(*observed).Machine = flipped
	return true
}

// injectFlip flips a bit at times. A tainted member is restarted, or the group is
// partitioned: other faults need its program.
func (sim *simulation) injectFlip(m *simMember) bool {
	switch {
	case sim.extraRNG.IntN(4) == 0 && sim.flipBit(m):
	case !m.tainted:
		return false
	case sim.extraRNG.IntN(2) == 0:
		sim.injectNetworkFault()
	case m.process != nil:
		m.crash("injected")
		sim.faults.restartLater(m)
	}
	return true
}

// mayTaint reports whether a majority of the voters is neither tainted nor lost without
// this member.
func (sim *simulation) mayTaint(m *simMember) bool {
	voters := len(sim.members) - sim.standbys
	if m.n >= voters {
		return true
	}
	bad := 1
	for _, other := range sim.members[:voters] {
		if other.tainted || other.destroyed {
			bad++
		}
	}
	return bad <= (voters-1)/2
}

// flippedMachine returns a machine with the group's state, except for one bit. The bit is
// not in the group's time, nor in a record of a member: these would reach all others
// by what a leader proposes.
func (sim *simulation) flippedMachine() (*machine.Machine, string) {
	state := sim.history.durableState
	keys := slices.Sorted(maps.Keys(state))
	for range 20 {
		key := keys[sim.extraRNG.IntN(len(keys))]
		if _, ok := state["m"]; ok && sim.extraRNG.IntN(2) == 0 {
			key = "m" // counters, which nearly every change depends on
		}
		value := sim.flip(key, state[key])
		if value == nil {
			continue
		}
		loaded, err := loadSafely(func(yield func(k, v []byte) bool) {
			for _, k := range keys {
				v := state[k]
				if k == key {
					v = value
				}
				if !yield([]byte(k), v) {
					return
				}
			}
		})
		if err == nil {
			return loaded, fmt.Sprintf("%q", key)
		}
	}
	return nil, ""
}

// flip returns a record with a flipped bit, or nil for one that is left alone.
func (sim *simulation) flip(key string, value []byte) []byte {
	bit := sim.extraRNG.Uint64N(30)
	switch {
	case key[0] == 'M' || len(value) == 0:
		return nil
	case key != "m":
		value = slices.Clone(value)
		value[sim.extraRNG.IntN(len(value))] ^= 1 << (bit % 8)
		return value
	}
	record := new(wire.MachineState)
	if err := proto.Unmarshal(value, record); err != nil {
		sim.fail("decode the machine's record: %v", err)
	}
	field := []*uint64{&record.Fences, &record.Positions, &record.Changes}[sim.extraRNG.IntN(3)]
	*field ^= 1 << bit
	value, err := proto.Marshal(record)
	if err != nil {
		sim.fail("encode the machine's record: %v", err)
	}
	return value
}

// loadSafely loads a machine from a state that may be invalid.
func loadSafely(state func(yield func(k, v []byte) bool)) (m *machine.Machine, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return machine.Load(state)
}

// takeTainted is Take of a tainted member. Its machine may panic; the loop of a member
// recovers that.
func (proc *process) takeTainted() (out core.Effects, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return proc.core.Take(proc.clock())
}

// taintedStopped ends a tainted process that has stopped. At times it has stopped
// before it could record the divergence, and is started again.
func (proc *process) taintedStopped(err error) {
	m := proc.simMember
	recorded := errors.Is(err, core.ErrCorrupt) && (m.sim.draining || m.sim.extraRNG.IntN(2) == 0)
	m.sim.diverged++
	m.crash(fmt.Sprintf("state differs: %v, recorded: %t", err, recorded))
	if recorded {
		m.destroyed = true
	} else {
		m.sim.faults.restartLater(m)
	}
}

// clearTaint decides whether a restarted member is tainted still: not if the flip never
// showed in what it wrote, or that is lost. It runs until that can be told from the digest.
func (proc *process) clearTaint() {
	index, digest := proc.core.Digest()
	h := proc.sim.history
	switch {
	case !proc.fromDisk || index > h.last():
		return
	case index >= 2 && !h.entries[index-2].hasDigest:
		return
	case index >= 2 && h.entries[index-2].digest != digest:
		proc.fromDisk = false
		proc.sim.trace("member %d is tainted after its restart", proc.n)
		return
	}
	proc.tainted, proc.fromDisk = false, false
	proc.sim.trace("member %d is not tainted any more", proc.n)
	proc.feed.reset(proc.core.Machine())
	proc.program = newProgram(proc)
}

// differs reports whether a tainted member's state may show a difference.
func (proc *process) differs() bool {
	return proc.sim.history.differs(proc.core.Digest())
}

// differs reports whether a digest is not known to be the group's.
func (h *history) differs(index, digest uint64) bool {
	return index >= 2 && (index > h.last() || !h.entries[index-2].hasDigest || h.entries[index-2].digest != digest)
}

// isWrong reports whether a digest is known not to be the group's. Digests are known of the last entries that members have applied at a time.
func (h *history) isWrong(index, digest uint64) bool {
	return h.differs(index, digest) && index <= h.last() && h.entries[index-2].hasDigest
}

// settleTainted runs after the last fault: the tainted members whose states differ stop,
// and the others, whose flipped bits no change has depended on, restart.
func (sim *simulation) settleTainted() {
	if sim.flips == 0 {
		return
	}
	undecided := func(m *simMember) bool {
		return m.tainted && !m.destroyed && (m.process == nil || m.process.fromDisk || m.process.differs())
	}
	settled := func() bool { return !slices.ContainsFunc(sim.members, undecided) }
	patience := sim.now + 10*longestElection
	sim.runUntil("settlement", func() bool { return settled() || sim.now > patience })
	if !settled() && sim.undecidable() {
		sim.operatorDecides()
	}
	sim.await(20*longestElection, "stop of the members whose states differ", settled)
	for _, m := range sim.members {
		if m.tainted && !m.destroyed {
			m.crash("restart of a member with a latent flip")
			m.start()
		}
	}
	tainted := func(m *simMember) bool { return m.tainted && !m.destroyed }
	sim.await(20*longestElection, "restart of the members with latent flips", func() bool { return !slices.ContainsFunc(sim.members, tainted) })
}

// undecidable reports whether a healthy voter needs a snapshot, which a leader does not
// send while voters differ and no majority agrees.
func (sim *simulation) undecidable() bool {
	leader := sim.leader()
	if leader == nil {
		return false
	}
	begin, _ := leader.log.FirstIndex()
	return slices.ContainsFunc(sim.members[:len(sim.members)-sim.standbys], func(m *simMember) bool {
		return m.process != nil && !m.tainted && m.process.core.Status().Applied+1 < begin
	})
}

// operatorDecides stops the members with a flipped bit permanently and restarts the others,
// as docs/OPERATIONS.md describes.
func (sim *simulation) operatorDecides() {
	sim.trace("an operator decides")
	sim.decided++
	for _, m := range sim.members {
		if m.tainted && !m.destroyed {
			m.crash("stopped by an operator")
			m.destroyed = true
		}
	}
	sim.advance(time.Second) // its last digests arrive
	for _, m := range sim.members {
		if m.process != nil {
			m.crash("restarted by an operator")
			m.start()
		}
	}
}

// A bit flips in the leader, a follower, a standby, or two of five, in different seeds of
// a scripted group. The faulty ones stop, the others do not.
func TestFlip_OnlyFaultyMembersStop(t *testing.T) {
	for name, test := range map[string]struct {
		voters, standbys int
		leader           bool
		followers        int
	}{
		"leader":              {3, 0, true, 0},
		"follower":            {3, 0, false, 1},
		"standby":             {3, 1, false, 0},
		"standby of one":      {1, 1, false, 0},
		"two of five":         {5, 0, false, 2},
		"leader and follower": {5, 0, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			sim := newScriptedGroup(t, 1, test.voters, test.standbys, faults{})
			sim.register(sim.leader().n)
			leader := sim.leader()
			var faulty []*simMember
			if test.leader {
				faulty = append(faulty, leader.simMember)
			}
			for _, m := range sim.members {
				if m.n >= test.voters || m != leader.simMember && test.followers > 0 {
					faulty = append(faulty, m)
					test.followers--
				}
			}
			for _, m := range faulty {
				sim.flipFences(m)
			}
			healthy := sim.members[slices.IndexFunc(sim.members, func(m *simMember) bool { return !m.tainted })]
			if !healthy.process.program.registered {
				sim.register(healthy.n)
			}
			sim.openSession(healthy.n, 5*time.Second, 0, wire.Behavior_RELEASE)
			sim.await(5*longestElection, "stop of the faulty members", func() bool {
				return !slices.ContainsFunc(faulty, func(m *simMember) bool { return !m.destroyed })
			})
			sim.awaitLeader()
		})
	}
}

// withFences returns a machine with the group's state and another counter of fences.
func (sim *simulation) withFences(difference uint64) *machine.Machine {
	state := maps.Clone(sim.history.durableState)
	record := new(wire.MachineState)
	if err := proto.Unmarshal(state["m"], record); err != nil {
		sim.fail("decode the machine's record: %v", err)
	}
	record.Fences ^= difference
	changed, err := proto.Marshal(record)
	if err != nil {
		sim.fail("encode the machine's record: %v", err)
	}
	state["m"] = changed
	loaded, err := machine.Load(func(yield func(k, v []byte) bool) {
		for _, k := range slices.Sorted(maps.Keys(state)) {
			if !yield([]byte(k), state[k]) {
				return
			}
		}
	})
	if err != nil {
		sim.fail("load the machine: %v", err)
	}
	return loaded
}

// A bit flips in the leader while one of three voters is down, and the log is truncated
// beyond what that one has. A snapshot of the leader's state must not outvote the healthy
// voter: none is sent. The faulty member is then stopped and the healthy one restarted,
// as an operator would.
func TestFlip_LeaderSendsNoSnapshot(t *testing.T) {
	sim := newScriptedGroup(t, 1, 3, 0, faults{keepEntries: 3})
	faulty, healthy, lagging := sim.separate()
	for range 10 {
		sim.renew(healthy.n)
	}
	if first, _ := faulty.process.log.FirstIndex(); first <= lagging.process.core.Status().Commit+1 {
		t.Fatalf("the log begins at %d", first)
	}
	sim.flipFences(faulty)
	sim.openSession(healthy.n, 5*time.Second, 0, wire.Behavior_RELEASE)
	sim.network.heal()
	sim.advance(20 * longestElection)
	if n := lagging.process.core.Status().Installed; n > 0 {
		t.Fatalf("%d snapshots are installed while voters differ", n)
	}
	sim.operatorDecides()
	sim.await(10*longestElection, "snapshot of the healthy voter", func() bool { return lagging.process.core.Status().Installed > 0 })
	sim.awaitLeader()
}

// The log waits while voters differ, so the voter that was down decides by it: only the
// faulty leader stops.
func TestFlip_ReturningVoterDecides(t *testing.T) {
	sim := newScriptedGroup(t, 1, 3, 0, faults{keepEntries: 3})
	faulty, healthy, lagging := sim.separate()
	sim.flipFences(faulty)
	sim.openSession(healthy.n, 5*time.Second, 0, wire.Behavior_RELEASE)
	sim.advance(longestElection) // the digests of idle voters show the difference
	for range 20 {
		sim.renew(healthy.n)
	}
	sim.network.heal()
	sim.await(10*longestElection, "stop of the faulty member", func() bool { return faulty.destroyed })
	sim.awaitLeader()
	if n := lagging.process.core.Status().Installed; n > 0 {
		t.Errorf("%d snapshots were installed", n)
	}
}

// separate returns the leader, a registered follower, and one that is isolated.
func (sim *simulation) separate() (leader, follower, isolated *simMember) {
	leader = sim.leader().simMember
	others := slices.DeleteFunc(slices.Clone(sim.members), func(m *simMember) bool { return m == leader })
	sim.register(others[0].n)
	sim.isolate(others[1].n)
	return leader, others[0], others[1]
}

// renew has member n renew its registration.
func (sim *simulation) renew(n int) {
	sim.mustInvoke(n, wire.Code_OK, &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}})
}

// flipFences flips a bit in a member that has applied everything.
func (sim *simulation) flipFences(m *simMember) {
	sim.await(longestElection, "last index", func() bool { return m.process.core.Status().Applied == sim.history.last() })
	m.tainted, sim.draining = true, true
	m.process.program.terminate()
	m.process.core.Machine().(*observed).Machine = sim.withFences(1 << 20)
}
