package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// leftNames are those of the locks that sessions without a TTL have sets of. Some are in no other set, as sets of what many others
// ask for wait until their process ends.
var leftNames = []string{"left-0", "left-1", "left-2", "kept", locks[2]}

// leftSet is a set that a process of a member asked for, which its session without a TTL may still have when the next
// process attaches it.
type leftSet struct{ names, shared []string }

// mostLeft is how many of them a member remembers, as an application does that knows what it works on.
const mostLeft = 3

// addClaimants gives a session without a TTL a handle of sets, and one that takes locks of sets alone. The number of the
// latter is not that of another handle.
func (s *simSession) addClaimants() {
	if !s.program.sim.faults.claimsSets {
		return
	}
	s.addSetHandle()
	if s.setHandle.reclaim = s.attaches; s.attaches {
		s.leftFence = s.program.leftFence
	}
	s.single = &handle{session: s, n: setHandle + 1, space: wire.Space_LOCK, names: leftNames}
}

// actClaimants has those handles act at times, and the process of one that holds something crash.
func (s *simSession) actClaimants() {
	p := s.program
	if s.setHandle == nil || p.gateway.level() < wire.LevelSets {
		return
	}
	rng := p.sim.setsRNG
	switch rng.IntN(6) {
	case 0:
		s.single.act()
	case 1, 2, 3:
		s.setHandle.act()
	}
	if s.setHandle.state == held && !p.sim.draining && rng.IntN(3) == 0 {
		p.crashHolding("a set")
	}
}

// crashHolding ends the process while its session has something.
func (p *program) crashHolding(what string) {
	m := p.simMember
	if !p.sim.faults.crashes || p.sim.now >= faultPeriod {
		return
	}
	p.sim.schedule(0, func() {
		switch {
		case m.process != p.process:
		case p.remote != nil:
			m.kill()
			p.sim.schedule(p.sim.between(0, 3*time.Second), func() {
				if m.process == nil {
					m.startRemote()
				}
			})
		default:
			m.crash("with " + what)
			p.sim.faults.restartLater(m)
		}
	})
}

// attached begins to use a session of an earlier process. At times it is closed by force before it claims anything.
func (s *simSession) attached() {
	p := s.program
	s.open = true
	if f := &p.sim.faults; f.claimsSets && f.forcedCloses && !p.sim.draining && p.sim.setsRNG.IntN(6) == 0 {
		p.forceClose(s.id, p.sim.setsRNG.IntN(4) == 0, func() {})
	}
}

// toReclaim reports whether the handle has to claim or release what an earlier process may have left.
func (h *handle) toReclaim() bool {
	return h.reclaim && (!h.isSet() || h.session.program.gateway.level() >= wire.LevelSets)
}

// reclaimed notes that what the handle held is released. Of sets there may be more.
func (h *handle) reclaimed() {
	if !h.isSet() || h.set.all {
		h.reclaim = false
	}
}

// chooseLeft chooses what to ask for of what earlier processes may have left: in the end all names, so that nothing is left;
// before, what they asked for, or nearly that. It reports whether it has chosen something.
func (h *handle) chooseLeft() bool {
	p := h.session.program
	rng := p.sim.setsRNG
	switch {
	case !h.reclaim:
		return false
	case p.sim.draining:
		h.set.names, h.set.all = slices.Clone(leftNames), true
		return true
	case len(p.left) == 0:
		return false
	}
	left := p.left[rng.IntN(len(p.left))]
	h.set.names, h.set.shared = slices.Clone(left.names), slices.Clone(left.shared)
	switch rng.IntN(10) {
	case 0: // in another order
		slices.Reverse(h.set.names)
		slices.Reverse(h.set.shared)
	case 1: // in other modes
		h.set.names, h.set.shared = h.set.shared, h.set.names
	case 2: // without a name
		h.set.names = h.set.names[min(1, len(h.set.names)):]
	case 3: // others
		return false
	case 4: // one name in another mode
		if n := len(h.set.names); n > 0 {
			h.set.names, h.set.shared = h.set.names[:n-1], slices.Insert(h.set.shared, 0, h.set.names[n-1])
		}
	}
	return len(h.set.names)+len(h.set.shared) > 0
}

// leave notes what the handle asks for, in a session that another process may attach.
func (h *handle) leave() {
	p := h.session.program
	if h.session.ttl != 0 {
		return
	}
	p.left = append(p.left, leftSet{h.set.names, h.set.shared})
	p.left = p.left[max(0, len(p.left)-mostLeft):]
}

// noteLeft notes what a session has that another process may attach.
func (p *program) noteLeft(h *handle) {
	if h.session.ttl == 0 {
		p.leftFence = h.fence
	}
}

// releaseLeft names the hold of an earlier process, as an application may that has stored its fence. It is not that of this one.
func (h *handle) releaseLeft() {
	p, fence := h.session.program, h.session.leftFence
	h.session.leftFence, h.state = 0, inFlight
	command := &wire.Command{Op: &wire.Command_UnlockSet{UnlockSet: &wire.UnlockSet{Session: h.session.id[:], Fence: fence}}}
	if p.sim.setsRNG.IntN(2) == 0 {
		command = extendCommand(&wire.Extend{Session: h.session.id[:], Fence: fence, Set: true, MaxHold: int64(p.someMaxHold())})
	}
	p.submit(command, true, func(r *wire.Reply) {
		h.state = idle
		if r != nil && r.GetCode() != wire.Code_NOT_HELD {
			h.checkRefusal(r)
		}
	})
}
