package machine

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// What meets a lock that has shares left for the next entries, by name.
var portionEvents = []string{
	"two locks at once", "an exclusive set waits", "a shared set waits", "a reservation behind", "an exclusive request behind", "beside a lock-delay",
	"reloaded", "reloaded with an exclusive set", "reloaded with a reservation",
	"an exclusive set granted", "a shared set granted", "granted to a set in the entry that left shares", "reserved for a set before",
	"session of a holder ended", "session of a waiter ended", "head withdrawn", "a holder's share ended by MaxHold", "an unclaimed share beside",
	"left by a Downgrade", "in a cycle that was refused", "gone on by an entry without commands",
}

// portionWatch counts what meets locks that have shares left for the next entries.
type portionWatch struct {
	seen    map[string]int
	due     []dueLock // after the entry before
	reloads int
	fence   uint64 // the largest before the entry
}

// dueLock is what a lock was that had shares left.
type dueLock struct {
	*lock
	head            *waiter
	ticket          wire.Ticket // of the head
	sets            [2][]*set   // that waited for it, exclusively and shared
	reserving       bool
	holders, queued []*session
	unclaimed       bool
	ending          []holdEnd // by MaxHold
}

// holdEnd is when a share ends, and of which session.
type holdEnd struct {
	number  uint64
	session *session
	ends    int64
}

func newDueLock(m *Machine, l *lock) dueLock {
	w := l.head()
	d := dueLock{
		lock: l, head: w, ticket: wire.Ticket{Incarnation: w.ticket.by.id, Seq: w.ticket.seq},
		reserving: l.sets().reservation(true, 0) != nil,
	}
	for mode := range d.sets {
		for _, p := range l.sets().all(mode == 1) {
			d.sets[mode] = append(d.sets[mode], p.set)
		}
	}
	for _, sh := range m.sharesOf(l) {
		if sh.owner == nil {
			continue
		}
		d.holders = append(d.holders, sh.owner)
		d.unclaimed = d.unclaimed || sh.unclaimed()
		if end := sh.ending(); end != nil {
			d.ending = append(d.ending, holdEnd{sh.number, sh.owner, end.ends})
		}
	}
	for ; w != nil; w = w.inQueue.Next() {
		d.queued = append(d.queued, w.session)
	}
	return d
}

func (w *portionWatch) look(r *rig, entry []byte) {
	commands := commandsOf(entry)
	for _, d := range w.due {
		if r.reloads > w.reloads {
			w.reloaded(d)
		}
		w.met(r, d, commands)
	}
	for _, l := range r.straight.locks.byName { // order: only counts
		w.count(w.setAfterShares(l), "granted to a set in the entry that left shares")
	}
	w.reloads, w.due, w.fence = r.reloads, nil, r.fence
	for _, l := range r.straight.locks.byName { // order: only counts
		if l.isDue() {
			d := newDueLock(r.straight, l)
			w.due = append(w.due, d)
			w.present(d, commands)
		}
	}
	w.count(len(w.due) > 1, "two locks at once")
}

func (w *portionWatch) count(is bool, what string) {
	if is {
		w.seen[what]++
	}
}

// missing returns what has not happened.
func (w *portionWatch) missing() []string {
	return slices.DeleteFunc(slices.Clone(portionEvents), func(what string) bool { return w.seen[what] > 0 })
}

// present counts what is true of a lock after the entry.
func (w *portionWatch) present(d dueLock, commands []*wire.Command) {
	w.seen["locks with shares left"]++
	w.count(len(d.sets[0]) > 0, "an exclusive set waits")
	w.count(len(d.sets[1]) > 0, "a shared set waits")
	w.count(d.reserving, "a reservation behind")
	w.count(d.exclusives() > 0, "an exclusive request behind")
	w.count(d.phase().delayed > 0, "beside a lock-delay")
	w.count(d.unclaimed, "an unclaimed share beside")
	w.count(slices.ContainsFunc(commands, func(c *wire.Command) bool { return c.GetDowngrade().GetName() == d.name() }), "left by a Downgrade")
}

func (w *portionWatch) reloaded(d dueLock) {
	w.seen["reloaded"]++
	w.count(len(d.sets[0]) > 0, "reloaded with an exclusive set")
	w.count(d.reserving, "reloaded with a reservation")
}

// met counts what has become of a lock in an entry.
func (w *portionWatch) met(r *rig, d dueLock, commands []*wire.Command) {
	now := r.straight.locks.byName[d.name()]
	granted := func(s *set) bool { return !s.waits() }
	w.count(slices.ContainsFunc(d.sets[0], granted), "an exclusive set granted")
	w.count(slices.ContainsFunc(d.sets[1], granted), "a shared set granted")
	w.count(now == d.lock && d.owner == nil && d.lock.head() == d.head && !d.isDue(), "reserved for a set before")
	for _, e := range r.last.Ended {
		is := func(s *session) bool { return s.id == e.Session }
		w.count(slices.ContainsFunc(d.holders, is), "session of a holder ended")
		w.count(slices.ContainsFunc(d.queued, is), "session of a waiter ended")
	}
	for _, o := range r.last.Outcomes {
		w.count(o.Ticket == d.ticket && o.Reply.Code == wire.Code_WITHDRAWN && o.Reply.Index == r.index, "head withdrawn")
		w.count(len(commands) == 0 && o.Ticket == d.ticket && o.Reply.Code == wire.Code_OK, "gone on by an entry without commands")
		for _, step := range o.Reply.GetCycle().GetWaits() {
			w.count(step.Name == d.name(), "in a cycle that was refused")
		}
	}
	for _, end := range d.ending {
		_, held := d.phase().live.Get(&share{number: end.number})
		w.count(!held && end.ends <= r.straight.now && !end.session.dead(), "a holder's share ended by MaxHold")
	}
}

// setAfterShares reports that a set has a lock of which shares were granted in the same entry, while others wait for
// some behind the set.
func (w *portionWatch) setAfterShares(l *lock) bool {
	s, head := l.set(), l.head()
	return s != nil && s.fence > w.fence && l.phase() != nil && l.phase().fence > w.fence && head != nil && head.shared && s.position < head.position
}

// commandsOf returns the commands of an entry; none if it is no batch.
func commandsOf(entry []byte) (commands []*wire.Command) {
	batch := new(wire.Batch)
	if proto.Unmarshal(entry, batch) != nil {
		return nil
	}
	for _, s := range batch.GetSubmissions() {
		for _, call := range s.GetCalls() {
			c := new(wire.Command)
			if proto.Unmarshal(call.GetCommand(), c) == nil {
				commands = append(commands, c)
			}
		}
	}
	return commands
}
