package machine

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// reentry is a hold of a lock beyond the first. It has a durable record of its
// own, so that re-entering a lock many times writes a little each time.
type reentry struct {
	ticket ticket
	order  uint32 // larger than that of every earlier one of the same hold
	lock   *lock
}

func (e reentry) key() string { return reentryKey(e.ticket.wire()) }

func (e reentry) state() proto.Message {
	return &wire.ReentryState{Key: e.lock.key, Order: e.order}
}

func (m *Machine) reenter(l *lock, t ticket, limit uint32) *wire.Reply {
	e := reentry{ticket: t, order: 1, lock: l}
	if past := l.more().reentries; len(past) > 0 {
		e.order = past[len(past)-1].order
		e.order++
	}
	if l.holds >= MaxHolds || limit != 0 && l.holds >= limit || e.order == math.MaxUint32 {
		return m.reply(wire.Code_LIMIT_REACHED)
	}
	if r := m.mayHaveMore(l.owner); r != nil {
		return r
	}
	l.holds++
	l.addReentry(e)
	m.dirty.put(e.key(), e)
	m.dirty.put(l.key, l)
	return m.holding(l)
}

func (l *lock) addReentry(e reentry) {
	l.more().reentries = append(l.extra.reentries, e)
	l.owner.reentries++
	e.ticket.by.holds[e.ticket.seq] = l
}

func (l *lock) reentries() []reentry {
	if l.extra == nil {
		return nil
	}
	return l.extra.reentries
}

// removeReentry removes the re-entry at i.
func (m *Machine) removeReentry(l *lock, i int) {
	e := l.extra.reentries[i]
	l.extra.reentries = slices.Delete(l.extra.reentries, i, i+1)
	l.owner.reentries--
	delete(e.ticket.by.holds, e.ticket.seq)
	m.dirty.drop(e.key())
}

// trimTickets voids the newest ticket of a hold that has more tickets than holds:
// an Unlock does not name the Lock that it undoes.
func (m *Machine) trimTickets(l *lock) {
	n := len(l.reentries())
	tickets := int64(n)
	if l.ticket != (ticket{}) {
		tickets++
	}
	if n > 0 && tickets > int64(l.holds) {
		m.removeReentry(l, n-1)
	}
}

// voidTicket makes the hold independent of one of its tickets. The caller writes
// the lock.
func (m *Machine) voidTicket(l *lock, t ticket) {
	if l.ticket == t {
		l.ticket = ticket{}
		delete(t.by.holds, t.seq)
		return
	}
	m.removeReentry(l, slices.IndexFunc(l.reentries(), func(e reentry) bool { return e.ticket == t }))
}

// voidTickets makes the hold independent of all its tickets. The caller writes the
// lock.
func (m *Machine) voidTickets(l *lock) {
	for n := len(l.reentries()); n > 0; n-- {
		m.removeReentry(l, n-1)
	}
	if l.ticket != (ticket{}) {
		m.voidTicket(l, l.ticket)
	}
}
