package machine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// link joins what was read into a machine, and refuses what does not fit: a
// state that broke a rule of the machine would go on to break promises.
func (ld *loader) link() error {
	if ld.version == 0 && ld.pairs > 0 {
		return errAbsent
	}
	for _, join := range []func() error{ld.linkIncarnations, ld.linkChecks, ld.linkSessions, ld.linkLocks, ld.linkPermits, ld.linkWaiters, ld.checkSemaphores, ld.linkKeys, ld.linkTickets} {
		if err := join(); err != nil {
			return err
		}
	}
	return nil
}

func (ld *loader) linkIncarnations() error {
	for _, inc := range ld.m.incarnations {
		if ld.m.members[inc.member] == nil {
			return fmt.Errorf("incarnation %s: %w", inc.id, errLoose)
		}
	}
	return nil
}

func (ld *loader) linkChecks() error {
	for _, p := range ld.checks {
		c := p.of
		if c.member = ld.m.members[p.state]; c.member == nil {
			return fmt.Errorf("check %q: %w", c.name, errLoose)
		}
		c.member.checks[c.name] = c
		ld.m.checkups.schedule(c)
	}
	return nil
}

func (ld *loader) linkSessions() error {
	slices.SortFunc(ld.sessions, func(a, b pending[session, *wire.SessionState]) int { return byCreation(a.of, b.of) })
	for _, p := range ld.sessions {
		if ld.m.members[p.of.member] == nil {
			return fmt.Errorf("session %s: %w", p.of.id, errLoose)
		}
		ld.m.belong(p.of, p.of.member)
		if len(p.state.Incarnation) == 0 && p.of.ttl == 0 {
			continue // its process is gone
		}
		id, _ := wire.IDFrom(p.state.Incarnation)
		inc := ld.m.incarnation(id)
		if inc == nil || inc.member != p.of.member {
			return fmt.Errorf("session %s: %w", p.of.id, errLoose)
		}
		inc.bind(p.of)
	}
	return nil
}

// linkLocks gives sessions their holds in the order of the fences, as they
// were granted.
func (ld *loader) linkLocks() error {
	m := ld.m
	slices.SortFunc(ld.locks, func(a, b pending[lock, *wire.LockState]) int {
		return cmp.Or(cmp.Compare(a.of.fence, b.of.fence), cmp.Compare(a.of.key, b.of.key))
	})
	last := uint64(0)
	for _, p := range ld.locks {
		l := p.of
		id, held := wire.IDFrom(p.state.Session)
		switch {
		case held == (l.delayUntil != 0), held != (l.holds > 0), !held && (l.fence != 0 || l.handle != 0 || l.left || l.ticket != wire.Ticket{}):
			return fmt.Errorf("lock %q: it is neither held nor delayed", l.name())
		case l.left && l.ticket != wire.Ticket{}, len(p.state.Value) > 0 && !(held && l.isElection()):
			return fmt.Errorf("lock %q: %w", l.name(), errRange)
		case !held:
			m.delays.push(l)
			continue
		case l.fence <= last || l.fence > m.fence():
			return fmt.Errorf("lock %q: the fence was not given out, or twice", l.name())
		case m.sessions[id] == nil:
			return fmt.Errorf("lock %q: %w", l.name(), errLoose)
		}
		last = l.fence
		l.owner = m.sessions[id]
		l.owner.holds.push(&l.held, l)
		if l.isElection() {
			m.elect(l, p.state.Value)
		}
	}
	return nil
}

// linkPermits gives semaphores and sessions their permits in the order of the
// fences.
func (ld *loader) linkPermits() error {
	m := ld.m
	slices.SortFunc(ld.permits, func(a, b pending[permit, *wire.PermitState]) int {
		return cmp.Or(cmp.Compare(a.of.fence, b.of.fence), cmp.Compare(a.at, b.at))
	})
	last := uint64(0)
	locks := ld.locks // by fence
	for _, x := range ld.permits {
		p := x.of
		for len(locks) > 0 && locks[0].of.fence < p.fence {
			locks = locks[1:]
		}
		p.semaphore = m.semaphores[x.at]
		id, held := wire.IDFrom(x.state.Session)
		if held {
			p.owner = m.sessions[id]
		}
		switch {
		case p.semaphore == nil, held && p.owner == nil:
			return fmt.Errorf("permit of %q: %w", x.at, errLoose)
		case held != (p.delayUntil == 0), p.n == 0:
			return fmt.Errorf("permit of %q: it is neither held nor held back", x.at)
		case (p.left || !held) && p.ticket != wire.Ticket{}, p.left && !held:
			return fmt.Errorf("permit of %q: %w", x.at, errRange)
		case p.fence <= last || p.fence > m.fence() || len(locks) > 0 && locks[0].of.fence == p.fence:
			return fmt.Errorf("permit of %q: the fence was not given out, or twice", x.at)
		}
		last = p.fence
		p.semaphore.add(p)
		if held {
			p.owner.permits.push(&p.inSession, p)
			p.owner.left += p.leftOne()
		} else {
			m.delays.push(p)
		}
	}
	return nil
}

// linkWaiters fills the queues in the order of the positions.
func (ld *loader) linkWaiters() error {
	m := ld.m
	slices.SortFunc(ld.waiters, func(a, b pending[waiter, *wire.WaiterState]) int {
		return cmp.Compare(a.of.position, b.of.position)
	})
	for i, p := range ld.waiters {
		w := p.of
		id, _ := wire.IDFrom(p.state.Session)
		caller, _ := wire.IDFrom(p.state.Incarnation)
		w.session, w.incarnation = m.sessions[id], m.incarnation(caller)
		if !ld.linkQueue(w, p.at) || w.session == nil || w.incarnation == nil {
			return fmt.Errorf("waiter for %q: %w", p.at, errLoose)
		}
		if s := w.semaphore; s != nil && (w.permits == 0 || w.permits > s.limit) {
			return fmt.Errorf("waiter for %q: %w", p.at, errRange)
		}
		same := i > 0 && ld.waiters[i-1].of.position == w.position
		if same || w.position > m.positions || w.incarnation.waiting[w.seq] != nil {
			return fmt.Errorf("waiter for %q: the place was not given out, or twice", p.at)
		}
		m.candidates += len(w.value)
		w.join()
	}
	return nil
}

// linkQueue finds what w waits for by its durable key.
func (ld *loader) linkQueue(w *waiter, key string) bool {
	switch name := key[1:]; key[0] {
	case lockKind:
		w.lock = ld.m.locks[name]
	case electionKind:
		w.lock = ld.m.elections[name]
	case semaphoreKind:
		w.semaphore = ld.m.semaphores[name]
	}
	return w.lock != nil || w.semaphore != nil
}

// checkSemaphores looks whether each is in use as it has to be.
func (ld *loader) checkSemaphores() error {
	for name, s := range ld.m.semaphores { // order: shows in an error only
		head := s.queue.head()
		switch {
		case !s.resized && s.permits.len == 0 && head == nil:
			return fmt.Errorf("semaphore %q: it is kept for nobody", name)
		case !s.resized && s.free() < 0, head != nil && int64(head.permits) <= s.free():
			return fmt.Errorf("semaphore %q: %w", name, errRange)
		}
	}
	return nil
}

// linkKeys gives sessions the keys that they have locked.
func (ld *loader) linkKeys() (err error) {
	m := ld.m
	indexes := make([]uint64, 0, m.keys.tree.Len())
	m.keys.tree.Ascend(func(e *wire.Entry) bool {
		indexes = append(indexes, e.ModifyIndex)
		locked := !e.Session.IsZero()
		switch {
		case e.ModifyIndex > m.keys.changes, e.CreateIndex > e.ModifyIndex, e.CreateIndex == 0:
			err = fmt.Errorf("key %q: the index was not given out", e.Key)
		case locked && m.sessions[e.Session] == nil:
			err = fmt.Errorf("key %q: %w", e.Key, errLoose)
		case locked && (e.LockIndex == 0 || m.keys.delays[e.Key] != nil):
			err = fmt.Errorf("key %q: it cannot have been acquired", e.Key)
		default:
			m.bindKey(nil, e)
		}
		return err == nil
	})
	slices.Sort(indexes)
	if err == nil && len(slices.Compact(indexes)) < m.keys.tree.Len() {
		err = errors.New("two keys have one index")
	}
	return err
}

func (ld *loader) linkTickets() error {
	for _, p := range ld.tickets {
		inc := ld.m.incarnation(p.of.Incarnation)
		if inc == nil {
			return fmt.Errorf("ticket %s %d: %w", p.of.Incarnation, p.of.Seq, errLoose)
		}
		if floor := inc.window.floor; p.of.Seq <= floor || p.of.Seq-floor > MaxInFlight {
			return fmt.Errorf("ticket %s %d: %w", p.of.Incarnation, p.of.Seq, errRange)
		}
		inc.window.put(p.of.Seq, p.state)
	}
	return nil
}
