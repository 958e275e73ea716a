package machine

import (
	"iter"
	"math"
	"slices"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// Wait-for cycles. The nodes of the graph are sessions: a handle is of one name, so that the
// handle which holds one lock is never the one that waits for another. There is an edge from
// a session with a waiter to the owner of the lock, or to each that has a share of it. It is enough
// to follow owners: what stands before a waiter in its queue waits for the same owners. A session that waits for
// itself is no cycle: that is how the handles of a session exclude each other.
//
// Nothing is kept for this between two queries: locking must not pay for it. A walk begins
// at waiters, so that it costs nothing where none waits, whatever is held.

const (
	// maxWalked bounds the waiters that the walks of one query look at, to about 1 ms, and the
	// waiters and processes that walks may begin at. One process has no more queue places than
	// that.
	maxWalked = MaxQueued
	// sessionWalked is how many waiters a session that a walk reaches counts for, besides its
	// own: by what it takes to remember it.
	sessionWalked = 8
)

// WaitView is a step of a cycle: the session of Waiter waits for a lock that Holder has.
type WaitView struct {
	Space          wire.Space // LOCK or ELECTION
	Name           string
	Waiter, Holder OwnerView
}

// WaitCyclesQuery asks for cycles of sessions that wait for each other. The answer is a
// WaitCyclesView. The listing is complete when it says so, not with an empty page. A
// cycle may be listed once for each session in it.
type WaitCyclesQuery struct {
	After wire.Ticket // of a waiter; zero: before all
}

// WaitCyclesView is a page of cycles: for each session that is in one, a shortest one.
type WaitCyclesView struct {
	Cycles [][]WaitView
	Next   wire.Ticket // to continue after
	Done   bool        // nothing follows
}

// Begin implements [Query].
func (q WaitCyclesQuery) Begin(m *Machine) func() any {
	p := cyclesPage{m: m, view: WaitCyclesView{Next: q.After}, left: maxWalked}
	for inc := range m.registry.from(q.After.Incarnation) {
		if !p.begin() {
			return answered(p.view)
		}
		if inc.waiters.Len() == 0 {
			p.view.Next = wire.Ticket{Incarnation: inc.id, Seq: math.MaxUint64} // there may be tens of thousands of those
			continue
		}
		pivot, more := &waiter{ticket: ticket{inc, 0}}, true
		if inc.id == q.After.Incarnation {
			pivot.ticket.seq = q.After.Seq
		}
		inc.waiters.AscendGreaterOrEqual(pivot, func(w *waiter) bool {
			more = w.ticket.wire() == q.After || p.add(w)
			return more
		})
		if !more {
			return answered(p.view)
		}
	}
	p.view.Done = true
	return answered(p.view)
}

// cyclesPage collects a page.
type cyclesPage struct {
	m      *Machine
	view   WaitCyclesView
	seen   int // waiters and processes
	left   int // waiters that walks may still look at
	walked bool
}

// add adds the cycle of the waiter's session, unless another waiter stands for that session
// or the page is full. A walk that is cut short is repeated in the next page, and once it was
// the first of its page given up.
func (p *cyclesPage) add(w *waiter) (more bool) {
	if !p.begin() {
		return false
	}
	if s := w.session; s.waiters.First() == w && s.holds.Len+s.leads.Len+s.shares.Len > 0 && !s.dead() {
		path, whole := s.cycle(&p.left, &p.m.visits)
		if !whole && p.walked {
			return false
		}
		if p.walked = true; len(path) > 0 {
			p.view.Cycles = append(p.view.Cycles, p.m.viewCycle(path))
		}
	}
	p.view.Next = w.ticket.wire()
	return true
}

// begin counts a waiter or a process that a walk may begin at, and reports whether the page has
// room for it.
func (p *cyclesPage) begin() (more bool) {
	p.m.visits.Count()
	p.seen++
	return p.seen <= maxWalked
}

// wait is an edge of the graph: a waiter, and the owner that it waits for.
type wait struct {
	waiter *waiter
	owner  *session
	share  *share // by which the owner is one; nil: it is the exclusive one
}

// cycle returns the edges along a shortest cycle through the session, from its own waiter
// on; nil: there is none, or not whole. It looks at left waiters and shares at most, and counts them
// down; whole reports that they were enough.
func (s *session) cycle(left *int, v *ordered.Visits) (path []wait, whole bool) {
	by := make(map[*session]wait) // by which the session was reached
	for next := []*session{s}; len(next) > 0; next = next[1:] {
		for w := next[0].waiters.First(); w != nil; w = w.inSession.Next() {
			v.Count()
			if *left--; *left < 0 {
				return nil, false
			}
			for edge := range w.blockedBy(v) { // which counts
				if edge.share != nil {
					if *left--; *left < 0 {
						return nil, false
					}
				}
				switch _, reached := by[edge.owner]; {
				case edge.owner.dead(), edge.owner == w.session, reached:
				case edge.owner != s:
					*left -= sessionWalked
					by[edge.owner] = edge
					next = append(next, edge.owner)
				default:
					for ok := true; ok; edge, ok = by[edge.waiter.session] {
						v.Count()
						path = append(path, edge)
					}
					slices.Reverse(path)
					return path, true
				}
			}
		}
	}
	return nil, true
}

// blockedBy iterates over the owners of what the waiter waits for, also those that have ended and are
// being released. There is none if it waits for a lock-delay, or for permits, which many sessions may
// release.
func (w *waiter) blockedBy(v *ordered.Visits) iter.Seq[wait] {
	return func(yield func(wait) bool) {
		switch l := w.lock; {
		case l == nil:
		case l.owner != nil:
			yield(wait{w, l.owner, nil})
		case l.phase().isLive() && !l.isDue():
			l.phase().live.Ascend(func(sh *share) bool {
				v.Count()
				return yield(wait{w, sh.owner, sh})
			})
		}
	}
}

func (m *Machine) viewCycle(path []wait) []WaitView {
	var views []WaitView
	for _, edge := range path {
		m.visits.Count()
		l := edge.waiter.lock
		v := WaitView{Name: l.name(), Waiter: m.viewWaiter(edge.waiter)}
		if edge.share != nil {
			v.Holder = sharing{m}.viewShare(edge.share).OwnerView
		} else {
			v.Holder = m.viewHolder(l)
		}
		if l.isElection() {
			v.Space = wire.Space_ELECTION
		}
		views = append(views, v)
	}
	return views
}
