package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// setRequest is what a handle of sets asks for, and has of it.
type setRequest struct {
	names, shared []string
	all           bool      // every name exclusively, to release what earlier processes have left
	parts         []*handle // what the handle holds, name by name; nil: nothing
	of            *handle   // of a part: the handle of the set
}

// setHandle is the number of a session's handle of sets.
const setHandle = 1 << 33

// setNames are those of the locks that are in sets.
var setNames = append(slices.Clone(locks), "kept")

// sets counts what became of requests for sets.
type sets struct {
	atOnce, queued   int // grants
	passed, reserved int // sets that a later request was granted a name of, and that had their names reserved
	lost             int // sets that ended with their session, or by MaxHold
}

func (s *sets) add(o sets) {
	s.atOnce += o.atOnce
	s.queued += o.queued
	s.passed += o.passed
	s.reserved += o.reserved
	s.lost += o.lost
}

// occurred reports whether there was some of each.
func (s sets) occurred() bool {
	return s.atOnce > 0 && s.queued > 0 && s.passed > 0 && s.reserved > 0 && s.lost > 0
}

// addSetHandle gives the session a handle of sets.
func (s *simSession) addSetHandle() {
	s.setHandle = &handle{session: s, n: setHandle, space: wire.Space_LOCK, set: new(setRequest)}
}

// actSet has the handle of sets act at times.
func (s *simSession) actSet() {
	if h := s.setHandle; h != nil && s.program.gateway.level() >= wire.LevelSets && s.program.sim.setsRNG.IntN(6) == 0 {
		h.act()
	}
}

// acquireSet asks for 1 to 4 names, in any order, or for what an earlier process of the session may have left.
func (h *handle) acquireSet(wait bool) {
	h.lock = ""
	*h.set = setRequest{}
	if !h.chooseLeft() {
		h.chooseNames()
	}
	h.leave()
	maxHold := h.chooseMaxHold()
	if h.set.all {
		maxHold = 0
	}
	h.request(wait, maxHold)
}

func (h *handle) chooseNames() {
	rng, names := h.session.program.sim.setsRNG, setNames
	if h.session.ttl == 0 {
		names = leftNames[:len(leftNames)-btoi(rng.IntN(8) > 0)]
	}
	*h.set = setRequest{}
	for _, i := range rng.Perm(len(names))[:1+rng.IntN(len(names))] {
		if rng.IntN(3) == 0 {
			h.set.shared = append(h.set.shared, names[i])
		} else {
			h.set.names = append(h.set.names, names[i])
		}
	}
}

func (h *handle) setCommand(wait bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_LockSet{LockSet: &wire.LockSet{
		Session: h.session.id[:], Handle: h.n, Names: h.set.names, Shared: h.set.shared, Wait: wait, MaxHold: int64(h.maxHold), RefuseDeadlock: h.refuses,
	}}}
}

func (h *handle) unlockSet() *wire.Command {
	return &wire.Command{Op: &wire.Command_UnlockSet{UnlockSet: &wire.UnlockSet{Session: h.session.id[:], Fence: h.fence}}}
}

// grantedSet takes the names of a grant. Its shares have the numbers before its fence.
func (h *handle) grantedSet(r *wire.Reply) {
	h.set.parts = nil
	fences, first := r.GetSet().GetFences(), r.GetFence()-uint64(len(h.set.shared))
	if len(fences) != len(h.set.shared) {
		h.session.program.sim.fail("%d fences of the shared names %v: %v", len(fences), h.set.shared, r)
	}
	for _, name := range h.set.names {
		h.set.parts = append(h.set.parts, h.part(name, r.GetFence()))
	}
	for i, name := range h.set.shared {
		part := h.part(name, fences[i])
		part.shared, part.share = true, first+uint64(i)
		h.set.parts = append(h.set.parts, part)
	}
}

func (h *handle) part(name string, fence uint64) *handle {
	return &handle{session: h.session, n: h.n, space: wire.Space_LOCK, lock: name, fence: fence, holds: 1, state: held, set: &setRequest{of: h}}
}

// isPart reports whether the handle is a part of a set.
func (h *handle) isPart() bool { return h.set != nil && h.set.of != nil }

// isSet reports whether the handle is one of sets.
func (h *handle) isSet() bool { return h.set != nil && h.set.of == nil }

// setNumber is by which the audit knows the set: its fence is that of its exclusive names, and that of none without them.
func setNumber(fence uint64, exclusive int) uint64 {
	if exclusive == 0 {
		return fence - 1
	}
	return fence
}

// withParts returns a handle of sets and what it holds.
func (h *handle) withParts() []*handle {
	if h == nil {
		return nil
	}
	if h.state == idle {
		h.set.parts = nil
	}
	return append([]*handle{h}, h.set.parts...)
}
