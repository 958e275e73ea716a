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
// a session with a waiter to the owner of the lock, or to each that has a share of it; from one with a set that waits,
// for each of its names; and to each set that has a name reserved before the request. It is enough to follow these: what stands before
// a waiter in its queue waits for the same ones, or, if it wants the lock exclusively, also for sets that have a share of it
// reserved. A session that waits for itself is no cycle: that is how the handles of
// a session exclude each other.
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

// WaitView is a step of a cycle: the session of Waiter waits for a lock that Holder has, or for whose set it is reserved.
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
		if inc.waiters.Len()+inc.waitingSets.Len() == 0 {
			p.view.Next = wire.Ticket{Incarnation: inc.id, Seq: math.MaxUint64} // there may be tens of thousands of those
			continue
		}
		after := uint64(0)
		if inc.id == q.After.Incarnation {
			after = q.After.Seq
		}
		if !p.addAll(inc, after) {
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

// addAll adds the cycles of what a process waits for, by sequence number from the one on that follows after.
func (p *cyclesPage) addAll(inc *incarnation, after uint64) (more bool) {
	if after == math.MaxUint64 {
		return true
	}
	var sets []*set
	t := ticket{seq: after + 1}
	if inc.waitingSets.Len() > 0 {
		inc.waitingSets.AscendGreaterOrEqual(&set{ticket: t}, func(s *set) bool {
			p.m.visits.Count()
			sets = append(sets, s)
			return len(sets) <= maxWalked-p.seen
		})
	}
	more = true
	inc.waiters.AscendGreaterOrEqual(&waiter{ticket: t}, func(w *waiter) bool {
		for more && len(sets) > 0 && sets[0].ticket.seq < w.ticket.seq {
			p.m.visits.Count()
			more, sets = p.add(request{set: sets[0]}), sets[1:]
		}
		more = more && p.add(request{waiter: w})
		return more
	})
	for more && len(sets) > 0 {
		p.m.visits.Count()
		more, sets = p.add(request{set: sets[0]}), sets[1:]
	}
	return more
}

// add adds the cycle of the waiter's session, unless another waiter stands for that session
// or the page is full. A walk that is cut short is repeated in the next page, and once it was
// the first of its page given up.
func (p *cyclesPage) add(r request) (more bool) {
	if !p.begin() {
		return false
	}
	if s := r.session(); s.firstRequest() == r && s.isInTheWay() && !s.dead() {
		path, whole := s.cycle(&p.left, &p.m.visits)
		if !whole && p.walked {
			return false
		}
		if p.walked = true; len(path) > 0 {
			p.view.Cycles = append(p.view.Cycles, p.m.viewCycle(path))
		}
	}
	p.view.Next = r.ticket().wire()
	return true
}

// begin counts a waiter or a process that a walk may begin at, and reports whether the page has
// room for it.
func (p *cyclesPage) begin() (more bool) {
	p.m.visits.Count()
	p.seen++
	return p.seen <= maxWalked
}

// firstRequest returns the request of a session that waits which stands for all.
func (s *session) firstRequest() request {
	if w := s.waiters.First(); w != nil {
		return request{waiter: w}
	}
	return request{set: s.waitingSets.First()}
}

// isInTheWay reports whether another session may wait for this one: a session that has nothing is in no cycle.
func (s *session) isInTheWay() bool {
	return s.holds.Len+s.leads.Len+s.shares.Len+s.sets.Len+s.reserving > 0
}

func (r request) ticket() ticket {
	if r.set != nil {
		return r.set.ticket
	}
	return r.waiter.ticket
}

// wait is an edge of the graph: a request, and an owner of a lock that it waits for.
type wait struct {
	by     request
	shared bool // it wants a share
	lock   *lock
	owner  *session
	share  *share // by which the owner is one; nil: it is the exclusive one
	part   *part  // of a set that the lock is reserved for; nil: it is held
}

// cycle returns the edges along a shortest cycle through the session, from its own waiter
// on; nil: there is none, or not whole. It looks at left waiters and shares at most, and counts them
// down; whole reports that they were enough.
func (s *session) cycle(left *int, v *ordered.Visits) (path []wait, whole bool) {
	x := search{to: s, left: left, visits: v, by: make(map[*session]wait), next: []*session{s}, each: true}
	return x.run()
}

// search looks for a shortest way along edges to a session, the nearest sessions first.
type search struct {
	to     *session
	left   *int
	visits *ordered.Visits
	by     map[*session]wait // by which the session was reached
	next   []*session        // reached, and their waiters are not followed yet
	inUse  bool              // follow nothing that lingers: whether its process uses it is not known here
	each   bool              // follow each reservation of a lock, and not the oldest alone
}

// run follows the waiters of the sessions reached, and of those that they reach.
func (x *search) run() (path []wait, whole bool) {
	for ; len(x.next) > 0; x.next = x.next[1:] {
		x.visits.Count()
		for w := x.next[0].waiters.First(); w != nil; w = w.inSession.Next() {
			x.visits.Count()
			if path, whole = x.follow(request{waiter: w}); path != nil || !whole {
				return path, whole
			}
		}
		for s := x.next[0].waitingSets.First(); s != nil; s = s.inSession.Next() {
			x.visits.Count()
			if path, whole = x.follow(request{set: s}); path != nil || !whole {
				return path, whole
			}
		}
	}
	return nil, true
}

// follow follows the edges of a request. It returns the whole way if one of them leads to the session.
func (x *search) follow(r request) (path []wait, whole bool) {
	if *x.left--; *x.left < 0 {
		return nil, false
	}
	for edge := range r.blockedBy(x.each, x.visits, x.left) { // which counts
		if *x.left < 0 {
			return nil, false
		}
		switch _, reached := x.by[edge.owner]; {
		case edge.owner.dead(), edge.owner == r.session(), reached, x.inUse && edge.lingers():
		case edge.owner != x.to:
			*x.left -= sessionWalked
			x.by[edge.owner] = edge
			x.next = append(x.next, edge.owner)
		default:
			for ok := true; ok; edge, ok = x.by[edge.by.session()] {
				x.visits.Count()
				path = append(path, edge)
			}
			slices.Reverse(path)
			return path, true
		}
	}
	return nil, *x.left >= 0
}

// lingers reports whether the owner may keep the lock without using it.
func (e wait) lingers() bool {
	switch {
	case e.part != nil:
		return false
	case e.share != nil:
		return e.share.lingering
	}
	return e.lock.lingering
}

// blockedBy iterates over the owners of what the request waits for, also those that have ended and are
// being released. It counts down left for each share, for each name of a set, and, with each, for each reservation. There is
// none if it waits for a lock-delay, for permits, which many sessions may release, or for a run of a job.
func (r request) blockedBy(each bool, v *ordered.Visits, left *int) iter.Seq[wait] {
	return func(yield func(wait) bool) {
		switch w := r.waiter; {
		case r.set != nil:
			for i := range r.set.parts {
				v.Count()
				if *left--; *left < 0 || !r.set.parts[i].blockedBy(each, v, left, yield) {
					return
				}
			}
		case w.lock != nil && !w.lock.isJob():
			holders(w.lock, wait{by: r, lock: w.lock, shared: w.shared}, !w.lock.isDue(), each, v, left, yield)
		}
	}
}

// blockedBy yields what keeps the lock from the part.
func (p *part) blockedBy(each bool, v *ordered.Visits, left *int, yield func(wait) bool) (more bool) {
	if p.lock == nil {
		return true
	}
	head := p.lock.head()
	behind := head != nil && (p.set.position == 0 || head.position < p.set.position) && !p.lock.isDue()
	return holders(p.lock, wait{by: request{set: p.set}, lock: p.lock, shared: p.shared}, !p.shared || behind, each, v, left, yield)
}

// holders yields the owners of a lock for an edge, those of shares if they are in the way, and the sets that it is reserved for
// before the request: each of them, or the oldest one.
func holders(l *lock, e wait, byShares, each bool, v *ordered.Visits, left *int, yield func(wait) bool) (more bool) {
	more = true
	switch {
	case l.owner != nil:
		held := e
		held.owner = l.owner
		more = yield(held)
	case byShares && l.phase().isLive():
		l.phase().live.Ascend(func(sh *share) bool {
			v.Count()
			*left--
			held := e
			held.owner, held.share = sh.owner, sh
			more = yield(held)
			return more
		})
	}
	reserved := func(p *part) bool {
		e.owner, e.part = p.set.session, p
		more = yield(e)
		return more
	}
	switch ws := l.sets(); {
	case !more || ws == nil:
	case each:
		ws.reservations(l, e.shared, e.by.position(), v, left, reserved)
	default:
		if p := ws.reservation(e.shared, e.by.position()); p != nil {
			reserved(p)
		}
	}
	return more
}

func (m *Machine) viewCycle(path []wait) []WaitView {
	var views []WaitView
	for _, edge := range path {
		m.visits.Count()
		l := edge.lock
		v := WaitView{Name: l.name(), Waiter: edge.by.view(m, edge.shared)}
		switch {
		case edge.part != nil:
			v.Holder = request{set: edge.part.set}.view(m, edge.part.shared)
		case edge.share != nil:
			v.Holder = sharing{m}.viewShare(edge.share).OwnerView
		default:
			v.Holder = m.viewHolder(l)
		}
		if l.isElection() {
			v.Space = wire.Space_ELECTION
		}
		views = append(views, v)
	}
	return views
}
