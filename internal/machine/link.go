package machine

import (
	"cmp"
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
	for _, join := range []func() error{ld.linkSessions, ld.linkLocks, ld.linkWaiters, ld.linkTickets} {
		if err := join(); err != nil {
			return err
		}
	}
	return nil
}

func (ld *loader) linkSessions() error {
	for _, p := range ld.sessions {
		id, _ := wire.IDFrom(p.state.Incarnation)
		inc := ld.m.incarnation(id)
		if inc == nil || inc.member != p.state.Member {
			return fmt.Errorf("session %s: %w", p.of.id, errLoose)
		}
		p.of.incarnation = inc
		inc.bind(p.of)
	}
	return nil
}

// linkLocks gives sessions their holds in the order of the fences, as they
// were granted.
func (ld *loader) linkLocks() error {
	m := ld.m
	slices.SortFunc(ld.locks, func(a, b pending[lock, *wire.LockState]) int {
		return cmp.Compare(a.of.fence, b.of.fence)
	})
	last := uint64(0)
	for _, p := range ld.locks {
		l := p.of
		id, held := wire.IDFrom(p.state.Session)
		switch {
		case !held && l.fence == 0 && l.holds == 0 && l.delayUntil > 0:
			m.delays.push(l)
			continue
		case !held || l.holds == 0 || l.delayUntil != 0:
			return fmt.Errorf("lock %q: it is neither held nor delayed", l.name())
		case l.fence <= last || l.fence > m.fence():
			return fmt.Errorf("lock %q: the fence was not given out, or twice", l.name())
		case m.sessions[id] == nil:
			return fmt.Errorf("lock %q: %w", l.name(), errLoose)
		}
		last = l.fence
		l.owner = m.sessions[id]
		l.owner.holds.push(&l.held, l)
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
		w.lock, w.session, w.incarnation = m.locks[p.lock], m.sessions[id], m.incarnation(caller)
		if w.lock == nil || w.session == nil || w.incarnation == nil {
			return fmt.Errorf("waiter for %q: %w", p.lock, errLoose)
		}
		same := i > 0 && ld.waiters[i-1].of.position == w.position
		if same || w.position > m.positions || w.incarnation.waiting[w.seq] != nil {
			return fmt.Errorf("waiter for %q: the place was not given out, or twice", p.lock)
		}
		w.join()
	}
	return nil
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
