package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/linger"
	"github.com/conclave-go/conclave/internal/wire"
)

// sharers keeps shares of locks for some handles of a session, as the client engine does for
// those that linger in shared mode. Their holds are counted by the gates of package linger,
// which are under test here.
type sharers struct {
	session *simSession
	handles []*handle
	open    *sharedTenure   // admits newcomers; nil: none
	tenures []*sharedTenure // all that have not ended
	number  uint64          // of the last one
}

// sharedTenure is a share and its request. In the group it has a handle of its own.
type sharedTenure struct {
	of      *sharers
	name    string
	number  uint64
	ticket  wire.Ticket
	queued  bool
	left    bool // all left before the grant: the request is withdrawn
	waiting []*handle

	kept, closed bool
	fence, share uint64
	gates        map[*handle]*linger.Gate
}

const firstSharedTenure = 1 << 32 // number of its handle

// addSharers gives half of the sessions handles that share tenures: each tenure is one more process that may have ended,
// and a search of the history tries all of them.
func (s *simSession) addSharers() {
	if s.program.sim.extraRNG.IntN(2) == 0 {
		return
	}
	s.sharers = &sharers{session: s, number: firstSharedTenure + tenants}
	for range tenants {
		s.sharers.handles = append(s.sharers.handles, &handle{
			session: s, n: firstSharedTenure + uint64(len(s.sharers.handles)), space: wire.Space_LOCK, shared: true,
		})
	}
}

// ending reports whether a tenure that is closed has not ended yet: its last hold ends it.
func (k *sharers) ending() bool {
	return k != nil && slices.ContainsFunc(k.tenures, func(t *sharedTenure) bool { return t.closed && t.kept })
}

// act has each handle act: they are cheap.
func (k *sharers) act() {
	if k == nil {
		return
	}
	p := k.session.program
	for _, h := range k.handles {
		switch rng := p.sim.extraRNG; h.state {
		case idle:
			if p.gateway.level() >= wire.LevelShared && (!p.sim.draining || p.cycles < 2) {
				k.join(h)
			}
		case acquiring:
			if rng.IntN(8) == 0 && !p.sim.draining || p.sim.now > h.calledAt+5*time.Second {
				h.sharing.leave(h)
			}
		case held:
			if rng.IntN(2) == 0 {
				h.sharing.exit(h)
			}
		}
	}
}

// join has a handle hold a share of its last tenure, as in the client without a look at whether that goes on, or else of the
// one that is open.
func (k *sharers) join(h *handle) {
	p := k.session.program
	if t := h.sharing; t != nil && t.kept && t.enter(h, t.gate(h).Enter) {
		return
	}
	t := k.open
	if t == nil {
		k.number++
		t = &sharedTenure{of: k, name: locks[p.sim.extraRNG.IntN(len(locks))], number: k.number, gates: make(map[*handle]*linger.Gate)}
		k.open, k.tenures = t, append(k.tenures, t)
		t.request(p.sim.extraRNG.IntN(4) > 0)
	}
	h.lock, h.calledAt, h.sharing = t.name, p.sim.now, t
	if !t.kept {
		h.state = acquiring
		t.waiting = append(t.waiting, h)
		return
	}
	t.enter(h, t.gate(h).Enter)
}

func (t *sharedTenure) gate(h *handle) *linger.Gate {
	if t.gates[h] == nil {
		t.gates[h] = new(linger.Gate)
		if t.closed {
			t.gates[h].Close()
		}
	}
	return t.gates[h]
}

// enter has a handle hold the lock, unless the session's deadline has passed here or the gate is closed.
func (t *sharedTenure) enter(h *handle, enter func(limit uint64) bool) bool {
	s := t.of.session
	if p := s.program; s.lost || p.terminated || s.ttl != 0 && p.clock() >= s.deadline || !enter(1) {
		h.state = idle
		return false
	}
	h.state, h.fence, h.share, h.holds = held, t.fence, t.share, 1
	s.program.sim.modes.local++
	s.program.sim.checkExclusive(h)
	return true
}

func (t *sharedTenure) exit(h *handle) {
	ok, last := t.gates[h].Exit()
	if !ok {
		t.of.session.program.sim.fail("handle %d has no hold of %s in its tenure", h.n, t.name)
	}
	h.holds = 0
	h.cycleDone()
	if last {
		t.next()
	}
}

// leave ends the wait of a handle. When the last one leaves before the grant, the request is withdrawn.
func (t *sharedTenure) leave(h *handle) {
	h.state = idle
	t.waiting = slices.DeleteFunc(t.waiting, func(o *handle) bool { return o == h })
	if len(t.waiting) > 0 {
		return
	}
	t.left = true
	t.forget()
	if t.queued {
		t.withdraw()
	}
}

func (t *sharedTenure) request(wait bool) {
	s := t.of.session
	call := s.program.call(&wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
		Name: t.name, Session: s.id[:], Handle: t.number, Wait: wait, Lingering: true, Shared: true,
	}}}, false, t.outcome)
	call.recheck = func(m wire.Rechecker, ticket wire.Ticket) *wire.Reply { return m.Recheck(ticket, s.id, "", "") }
	call.onUnsent = t.abort
}

func (t *sharedTenure) outcome(ticket wire.Ticket, r *wire.Reply, more bool) {
	switch {
	case r == nil:
		t.abort()
	case more:
		if t.ticket, t.queued = ticket, true; t.left {
			t.withdraw()
		}
	case r.GetCode() == wire.Code_OK && t.left:
		if t.fence, t.share = r.GetFence(), r.GetShare(); !t.queued { // else the withdrawal releases it
			t.release()
		}
	case r.GetCode() == wire.Code_OK:
		t.begin(r)
	case t.left, r.GetCode() == wire.Code_LOCKED, r.GetCode() == wire.Code_LOCK_DELAY: // withdrawn, or refused without waiting
		t.abort()
	default:
		t.refused(r)
		t.abort()
	}
}

// begin grants the lock to those that wait here, also if the share was recalled meanwhile.
func (t *sharedTenure) begin(r *wire.Reply) {
	t.kept, t.fence, t.share = true, r.GetFence(), r.GetShare()
	t.of.session.program.sim.modes.tenures++
	waiting := t.waiting
	t.waiting = nil
	for _, h := range waiting {
		t.enter(h, func(limit uint64) bool {
			admitted := t.gate(h).Admit(limit)
			if !admitted {
				t.of.session.program.sim.fail("handle %d waited for %s, and is not admitted", h.n, t.name)
			}
			return admitted
		})
	}
	t.next()
	t.rest()
}

// refused accepts a refusal if the session has ended.
func (t *sharedTenure) refused(r *wire.Reply) {
	(&handle{session: t.of.session, n: t.number, lock: t.name}).checkRefusal(r)
}

func (t *sharedTenure) abort() {
	for _, h := range t.waiting {
		h.state = idle
	}
	t.waiting = nil
	t.forget()
}

func (t *sharedTenure) forget() {
	k := t.of
	if k.open == t {
		k.open = nil
	}
	k.tenures = slices.DeleteFunc(k.tenures, func(o *sharedTenure) bool { return o == t })
}

// close admits no newcomers any more.
func (t *sharedTenure) close() {
	t.closed = true
	for _, g := range t.gates { // order: each is closed
		g.Close()
	}
	if t.of.open == t {
		t.of.open = nil
	}
	t.next()
}

// next releases the share when the tenure is closed and no handle has it.
func (t *sharedTenure) next() {
	if !t.closed || !t.kept || !slices.Contains(t.of.tenures, t) {
		return
	}
	for _, g := range t.gates { // order: none is found, or any
		if g.Holds() > 0 {
			return
		}
	}
	t.forget()
	t.release()
}

func (t *sharedTenure) release() {
	s := t.of.session
	s.insist(&wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{
		Name: t.name, Session: s.id[:], Handle: t.number, Fence: t.fence, Share: t.share,
	}}}, t.refused)
}

// withdraw withdraws the request, or releases its grant if that came first.
func (t *sharedTenure) withdraw() { t.of.session.insist(withdrawal(t.ticket), t.refused) }

// rest closes the tenure when no handle has held the lock for some time.
func (t *sharedTenure) rest() {
	p := t.of.session.program
	p.after(p.simulatedTime(time.Duration(p.sim.extraRNG.Int64N(int64(longestStay)))), func() {
		if t.closed {
			return
		}
		used := false
		for _, h := range t.of.handles {
			used = t.gate(h).Used() || used
		}
		if !used {
			t.close()
			return
		}
		t.rest()
	})
}

// recall closes the tenures that others wait for.
func (k *sharers) recall(meant func(*sharedTenure) bool) {
	if k == nil {
		return
	}
	for _, t := range slices.Clone(k.tenures) {
		if meant(t) {
			k.session.program.sim.modes.recalled++
			t.close()
		}
	}
}
