package machine

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Reading the shares of locks. A lock that is not held exclusively has no record: it is there
// because of its shares, or of waiters for some.

func (ld *loader) share(rest string, value []byte) error {
	st := new(wire.ShareState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	name, n, ok := number(rest)
	if !ok || name == "" {
		return errShape
	}
	sh := &share{
		number: n, handle: st.Handle, holds: st.Holds, lingering: st.Lingering, since: st.Since, label: st.Label, delayUntil: st.DelayUntil,
	}
	ld.shares = append(ld.shares, pending[share, *wire.ShareState]{of: sh, state: st, at: name})
	return nil
}

// freeLock adds a lock that has no record.
func (ld *loader) freeLock(key string) *lock {
	l := &lock{key: key}
	l.spaceIn(ld.m).add(l)
	return l
}

// linkShares gives locks and sessions their shares in the order of the numbers, as they were
// granted.
func (ld *loader) linkShares() error {
	if len(ld.shares) == 0 {
		return nil
	}
	if !(sharing{ld.m}).hasShared() {
		return fmt.Errorf("share of %q: %w", ld.shares[0].at, errRange)
	}
	slices.SortFunc(ld.shares, func(a, b pending[share, *wire.ShareState]) int {
		return cmp.Or(cmp.Compare(a.of.number, b.of.number), cmp.Compare(a.at, b.at))
	})
	drawn := make(map[uint64]*lock) // by what has taken a number from the counter; nil: something else than shares
	for _, p := range ld.locks {
		drawn[p.of.fence] = nil
	}
	for _, p := range ld.permits {
		drawn[p.of.fence] = nil
	}
	for _, p := range ld.shares {
		if err := ld.linkShare(p, drawn); err != nil {
			return fmt.Errorf("share of %q: %w", p.at, err)
		}
	}
	for _, p := range ld.shares { // the first of a phase may have ended
		if l := p.of.lock; p.of.owner != nil {
			if by, taken := drawn[l.phase().fence]; taken && by != l {
				return fmt.Errorf("share of %q: %w", p.at, errFence)
			} // a phase of another lock may have it, as that of a set that began both
		}
	}
	return nil
}

func (ld *loader) linkShare(p pending[share, *wire.ShareState], drawn map[uint64]*lock) (err error) {
	m, sh, st := ld.m, p.of, p.state
	id, held := wire.IDFrom(st.Session)
	if sh.ticket, err = ld.ticket(st.Incarnation, st.Seq); err != nil {
		return err
	}
	if _, taken := drawn[sh.number]; taken || sh.number == 0 || sh.number > m.fence() {
		return errFence
	}
	l := m.locks.byName[p.at]
	switch {
	case held == (sh.delayUntil != 0), held != (sh.holds > 0), held != (st.Fence != 0):
		return errNeither
	case !held && (sh.handle != 0 || sh.lingering || sh.ticket != ticket{}), !m.soundLabel(sh.label, sh.since, held), sh.delayUntil < 0:
		return errRange
	case held && m.sessions[id] == nil:
		return errLoose
	case l != nil && (l.owner != nil || l.delayUntil != 0):
		return errTwice // it has an exclusive owner, or had one whose lock-delay runs
	case l == nil:
		l = ld.freeLock(lockKey(false, p.at))
	}
	drawn[sh.number] = l
	sh.lock = l
	phase := sharing{m}.sharedBy(l)
	if err := ld.linkBound(sh, st.Ends, st.Requested, held && !sh.lingering); err != nil {
		return err
	}
	if !held {
		phase.delay(sh)
		m.shares++
		m.delays.Push(sh)
		return nil
	}
	if st.Fence > sh.number || phase.isLive() && st.Fence != phase.fence {
		return errFence
	}
	sh.owner, phase.fence = m.sessions[id], st.Fence
	sharing{m}.add(sh)
	return nil
}

// linkQueues checks that each waiter at the head of a queue has to wait: for an owner, for a
// lock-delay, for a set that the lock is reserved for, for shares if it wants the lock for itself, or, if it does not, for
// the next entry.
func (ld *loader) linkQueues() error {
	for name, l := range ld.m.locks.byName { // order: that of the heap is by position, whatever it is
		switch head := l.head(); {
		case l.owner != nil, l.delayUntil != 0, head == nil:
		case l.isDue():
			ld.m.portions.Push(l)
		case !head.shared && l.sets().reservation(false, head.position) == nil && !l.phase().held():
			return fmt.Errorf("lock %q: %w", name, errRange)
		}
	}
	return nil
}
