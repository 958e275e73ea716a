package sim

import (
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// history is the committed log, as the first member to apply each entry saw it,
// replayed by a machine that never crashes and never takes a snapshot. Every other
// member is compared with it.
type history struct {
	sim          *simulation
	oracle       *machine.Machine
	entries      []entryRecord // from index 2 on: a new log is truncated at 1
	outcomes     map[wire.Ticket][]*wire.Reply
	durableState map[string][]byte // what every disk must hold
	sessions     map[wire.ID]*simSession
	fence        uint64
	acknowledged uint64 // largest index of an outcome that a program has received
	leaderOf     map[uint64]int
	ledSince     time.Duration // when the last of them was first seen to lead
	holds        []string
	clients      map[wire.ID]bool        // their incarnations
	delivered    map[wire.ID][]delivered // what each client must be delivered, by incarnation
	onEntry      func()                  // runs after each new entry
	audit        *audit
	seal         *seal // of a further group that is sealed
	reference    *referenceChecker
}

// entryRecord is an entry and checksums of its effects.
type entryRecord struct {
	term          uint64
	data          uint32
	changes       uint32
	notifications uint64
	digest        uint64
	hasDigest     bool // whether digest is set
}

func newHistory(sim *simulation) *history {
	h := &history{
		sim: sim, oracle: sim.firstMachine(), audit: newAudit(sim), reference: newReferenceChecker(sim),
		outcomes:     make(map[wire.Ticket][]*wire.Reply),
		durableState: make(map[string][]byte),
		sessions:     make(map[wire.ID]*simSession),
		leaderOf:     make(map[uint64]int),
		clients:      make(map[wire.ID]bool),
		delivered:    make(map[wire.ID][]delivered),
	}
	for _, c := range sim.firstState() {
		h.durableState[string(c.Key)] = c.Value
	}
	return h
}

func (h *history) last() uint64 { return uint64(len(h.entries)) + 1 }

// observed is a member's machine under observation.
type observed struct {
	*machine.Machine
	process *process
}

func (o *observed) Apply(index, term uint64, data []byte) fact.Result {
	r := o.Machine.Apply(index, term, data)
	if o.process.tainted {
		return r
	}
	o.process.sim.history.applied(o.process, index, term, data, r)
	r.Outcomes = o.process.dropOutcomes(r.Outcomes)
	o.process.noteShards(index, r.Shards)
	return r
}

// dropOutcomes drops first outcomes of this process at random, as if they had been
// lost: the process retries the command and receives the same outcome. A dropped one keeps
// its place, without a ticket, as the ends of sessions have theirs among the outcomes.
func (proc *process) dropOutcomes(outcomes []fact.Outcome) (seen []fact.Outcome) {
	for _, o := range outcomes {
		switch {
		case o.Ticket.Incarnation != proc.core.Incarnation():
		case !proc.delivered[o.Ticket] && proc.sim.faults.dropOutcome():
			o.Ticket = wire.Ticket{}
		default:
			proc.delivered[o.Ticket] = true
		}
		seen = append(seen, o)
	}
	return seen
}

// applied records a new entry, or compares the member's result with the first one.
func (h *history) applied(proc *process, index, term uint64, data []byte, r fact.Result) {
	got := entryRecord{term: term, data: checksum(data), changes: changesSum(r.Changes), notifications: notificationSum(r)}
	if index <= h.last() {
		want := h.entries[index-2]
		if want.term != got.term || want.data != got.data {
			h.sim.fail("member %d applies a different entry %d than others did", proc.n, index)
		}
		if want.changes != got.changes || want.notifications != got.notifications {
			h.sim.fail("member %d: entry %d has a different effect than on other members", proc.n, index)
		}
		h.reference.checkResult(proc, index, r)
		return
	}
	h.skipMembership(index - 1)
	if index != h.last()+1 {
		h.sim.fail("member %d applies entry %d, but none has applied %d", proc.n, index, h.last()+1)
	}
	h.entries = append(h.entries, got)
	h.reference.entry(index, term, data)
	h.reference.checkResult(proc, index, r)
	h.replay(proc, index, term, data, got.changes)
}

// skipMembership records the entries up to index that no machine has seen:
// membership changes, which exist only in simulations with removals or joins.
func (h *history) skipMembership(index uint64) {
	for (h.sim.faults.removals || h.sim.faults.joins) && h.last() < index {
		h.entries = append(h.entries, entryRecord{})
		h.reference.results = append(h.reference.results, 0)
	}
}

// replay applies a new entry to the oracle and runs the checks of the log.
func (h *history) replay(proc *process, index, term uint64, data []byte, changes uint32) {
	r := h.oracle.Apply(index, term, data)
	if changesSum(r.Changes) != changes {
		h.sim.fail("member %d: entry %d has a different effect than on a machine that replayed the whole log", proc.n, index)
	}
	for _, c := range r.Changes {
		if c.Value == nil {
			delete(h.durableState, string(c.Key))
		} else {
			h.durableState[string(c.Key)] = c.Value
		}
	}
	for _, o := range r.Outcomes {
		if committed := h.outcomes[o.Ticket]; len(committed) == 0 || !proto.Equal(committed[len(committed)-1], o.Reply) {
			h.outcomes[o.Ticket] = append(committed, o.Reply)
		}
	}
	for _, e := range r.Ended {
		if !e.Unbound {
			h.sessionEnded(e, index)
		}
	}
	h.noteDelivered(index, r)
	h.audit.entry(index, term, data, r)
	h.checkGrants()
	h.sim.noteGroups()
	h.noteSeal()
	if h.onEntry != nil {
		h.onEntry()
	}
}

// sessionEnded checks that group time has not run ahead of the holder's deadline.
func (h *history) sessionEnded(e fact.Ended, index uint64) {
	s := h.sessions[e.Session]
	if s == nil || s.program.terminated || s.closing || len(s.checks) > 0 || s.program.isLeaving() || s.incarnation != s.program.incarnation {
		return // ended by intent: a close, a check, or a replaced process
	}
	h.sim.trace("session %s of member %d ends at entry %d", s.id, s.program.n, index)
	s.endedAt = h.sim.now
	if clock := s.program.clock(); clock < s.deadline && !h.sim.faults.coarseClocks {
		h.sim.fail("session %s of member %d ends at %v of its clock, before the holder's deadline %v", s.id, s.program.n, clock, s.deadline)
	}
}

// checkGrants checks that each new hold has a larger fence than all before. At most
// one per lock can be new.
func (h *history) checkGrants() {
	largest := h.fence
	for _, v := range locksOf(h.oracle) {
		if v.Fence <= h.fence && v.Held && !slices.Contains(h.holds, holdKey(v)) {
			h.sim.fail("lock %s is granted with fence %d, not above the previous largest fence %d", v.Name, v.Fence, h.fence)
		}
		if !v.Held && v.Delay <= 0 && !h.audit.waitsForSet(v.Name) {
			h.sim.fail("lock %s is free while %d callers wait", v.Name, v.Waiters)
		}
		largest = max(largest, v.Fence)
		for _, sh := range v.Holders {
			largest = max(largest, sh.Number)
		}
	}
	h.fence = largest
	h.holds = h.holds[:0]
	for _, v := range locksOf(h.oracle) {
		if v.Held {
			h.holds = append(h.holds, holdKey(v))
		}
	}
}

func holdKey(v machine.LockView) string {
	if v.Shared > 0 { // those who hold it change
		return fmt.Sprintf("%s/shared/%d", v.Name, v.Fence)
	}
	return fmt.Sprintf("%s/%s/%d/%d", v.Name, v.Session, v.Handle, v.Fence)
}

// checkOutcome checks that an outcome is the committed one.
func (h *history) checkOutcome(proc *process, t wire.Ticket, r *wire.Reply) {
	h.acknowledged = max(h.acknowledged, r.GetIndex())
	h.reference.checkOutcome(proc, t, r)
	for _, committed := range h.outcomes[t] {
		if proto.Equal(committed, r) {
			return
		}
	}
	h.sim.fail("member %d: ticket %v: outcome %v; the log has %v", proc.n, t.Seq, r, h.outcomes[t])
}

// checkRecheck checks a call's reply from the state of a snapshot.
func (h *history) checkRecheck(proc *process, t wire.Ticket, r *wire.Reply) {
	committed := h.outcomes[t]
	if len(committed) == 0 || committed[len(committed)-1].GetCode() == wire.Code_QUEUED {
		h.sim.fail("member %d: ticket %v: found %v in the state, but the log has no final outcome yet", proc.n, t.Seq, r)
	}
	sameGrant := func(k *wire.Reply) bool {
		sameTrace := len(r.GetTrace()) == 0 || string(k.GetTrace()) == string(r.GetTrace()) // it may have none where the log has one
		return k.GetCode() == wire.Code_OK && k.GetFence() == r.GetFence() && k.GetShare() == r.GetShare() && slices.Equal(k.GetSlots(), r.GetSlots()) && sameTrace
	}
	if r.GetCode() == wire.Code_OK && !slices.ContainsFunc(committed, sameGrant) { // the state may be older than the last outcome in the log
		h.sim.fail("member %d: ticket %v: found %v in the state; the log has %v", proc.n, t.Seq, r, committed)
	}
}

// checkLeader checks that a term has one leader.
func (h *history) checkLeader(term uint64, n int) {
	if other, ok := h.leaderOf[term]; ok && other != n {
		h.sim.fail("members %d and %d lead in term %d", other, n, term)
	}
	if _, ok := h.leaderOf[term]; !ok {
		h.ledSince = h.sim.now
		h.sim.trace("member %d leads in term %d", n, term)
	}
	h.leaderOf[term] = n
}

// checkDigest checks that digests are equal at equal indexes.
func (h *history) checkDigest(proc *process) {
	index, digest := proc.core.Digest()
	if index < 2 {
		return
	}
	h.skipMembership(index)
	e := &h.entries[index-2]
	if e.hasDigest && e.digest != digest {
		h.sim.fail("member %d: digest %x at entry %d, others have %x", proc.n, digest, index, e.digest)
	}
	e.digest, e.hasDigest = digest, true
}

// compareDisks checks at the end that every disk holds the committed state and that
// a restart recovers it.
func (sim *simulation) compareDisks() {
	for _, m := range sim.remaining() {
		// What a member has submitted is written before its directory is closed.
		sim.await(recoveryLimit, "an idle disk", func() bool {
			return !slices.ContainsFunc(sim.groups(), func(g *simulation) bool { return g.members[m.n].process.diskBusy })
		})
		m.stop()
		m.start()
		for _, g := range sim.groups() {
			g.compareDisk(g.members[m.n])
		}
		sim.checkLogs(m.process)
	}
}

// compareDisk is compareDisks for the part of a member that has just started in one of the groups.
func (sim *simulation) compareDisk(m *simMember) {
	if m.process == nil {
		sim.fail("member %d does not start its part in the group", m.n)
	}
	found := 0
	err := m.process.log.State(func(key, value []byte) error {
		found++
		if want, ok := sim.history.durableState[string(key)]; !ok || string(want) != string(value) {
			return fmt.Errorf("the disk has %x at %q", value, key)
		}
		return nil
	})
	if err != nil {
		sim.fail("member %d: %v", m.n, err)
	}
	if at := m.process.core.Status().Applied; at != sim.history.last() || found != len(sim.history.durableState) {
		sim.fail("member %d: %d pairs of entry %d on disk, want %d of %d", m.n, found, at, len(sim.history.durableState), sim.history.last())
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func changesSum(changes []wire.Change) uint32 {
	var s uint32
	for _, c := range changes {
		s = crc32.Update(s, castagnoli, c.Key)
		s = crc32.Update(s, castagnoli, []byte{byte(len(c.Key)), byte(len(c.Value))})
		s = crc32.Update(s, castagnoli, c.Value)
	}
	return s
}
