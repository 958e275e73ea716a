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
	x := search{to: s, left: left, visits: v, by: make(map[*session]wait), next: []*session{s}}
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
}

// run follows the waiters of the sessions reached, and of those that they reach.
func (x *search) run() (path []wait, whole bool) {
	for ; len(x.next) > 0; x.next = x.next[1:] {
		x.visits.Count()
		for w := x.next[0].waiters.First(); w != nil; w = w.inSession.Next() {
			x.visits.Count()
			if path, whole = x.follow(w); path != nil || !whole {
				return path, whole
			}
		}
	}
	return nil, true
}

// follow follows the edges of a waiter. It returns the whole way if one of them leads to the session.
func (x *search) follow(w *waiter) (path []wait, whole bool) {
	if *x.left--; *x.left < 0 {
		return nil, false
	}
	for edge := range w.blockedBy(x.visits) { // which counts
		if edge.share != nil {
			if *x.left--; *x.left < 0 {
				return nil, false
			}
		}
		switch _, reached := x.by[edge.owner]; {
		case edge.owner.dead(), edge.owner == w.session, reached, x.inUse && edge.lingers():
		case edge.owner != x.to:
			*x.left -= sessionWalked
			x.by[edge.owner] = edge
			x.next = append(x.next, edge.owner)
		default:
			for ok := true; ok; edge, ok = x.by[edge.waiter.session] {
				x.visits.Count()
				path = append(path, edge)
			}
			slices.Reverse(path)
			return path, true
		}
	}
	return nil, true
}

// lingers reports whether the owner may keep the lock without using it.
func (e wait) lingers() bool {
	if e.share != nil {
		return e.share.lingering
	}
	return e.waiter.lock.lingering
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

// deadlocks is a machine as far as it refuses requests whose wait would close a cycle. That is decided when the request
// would be queued, by the cycles through its own wait. While each session waits for one lock at a time, no
// other command closes one: a lock is granted to a session that has waited for it, and that waits no more.
type deadlocks struct{ *Machine }

// searched bounds the searches for deadlocks as maxWalked does those of queries.
type searched struct {
	each, all        int // MaxSearched, MaxAllSearched; smaller ones in tests
	members, clients int // what searches for them have looked at in the present entry
}

// of returns the sum that the command being applied counts in.
func (x deadlocks) of() *int {
	if x.forClient {
		return &x.searched.clients
	}
	return &x.searched.members
}

// mayWait refuses what may not be queued.
func (x deadlocks) mayWait(w *waiter, c *wire.Lock) *wire.Reply {
	if r := x.mayJoin(w); r != nil {
		return r
	}
	if !c.RefuseDeadlock || x.levels.agreed < wire.LevelDeadlock {
		return nil
	}
	path := x.closedBy(w)
	if path == nil {
		return nil
	}
	w.since = x.stamp()
	r := x.reply(wire.Code_DEADLOCK)
	r.Cycle = x.listed(path)
	return r
}

// closedBy returns a shortest cycle that the wait would close; nil: there is none, or it was not found within the
// bounds. A session that has nothing is in none.
func (x deadlocks) closedBy(w *waiter) []wait {
	s := w.session
	if s.holds.Len+s.leads.Len+s.shares.Len == 0 {
		return nil
	}
	sum := x.of()
	most := min(x.searched.each, x.searched.all-*sum)
	left := most
	search := search{to: s, left: &left, visits: &x.visits, by: make(map[*session]wait), inUse: true}
	path, whole := search.follow(w)
	if path == nil && whole {
		path, _ = search.run()
	}
	*sum += most - left
	return path
}

// listed returns a cycle as an outcome has it, which is kept: as many of its first steps as it may have.
func (x deadlocks) listed(path []wait) *wire.Cycle {
	c := &wire.Cycle{Length: uint32(len(path))}
	left := wire.MaxCycleBytes
	for i := range path {
		x.visits.Count()
		v := x.viewCycle(path[i : i+1])[0]
		step := &wire.Wait{Name: v.Name, Election: v.Space == wire.Space_ELECTION, Waiter: v.Waiter.wire(), Holder: v.Holder.wire()}
		if left -= wire.WaitBytes(step); left < 0 {
			break
		}
		c.Waits = append(c.Waits, step)
	}
	return c
}

func (v OwnerView) wire() *wire.LockOwner {
	return &wire.LockOwner{
		Session: v.Session[:], Name: v.Name, Member: v.Member, Client: v.Client, Handle: v.Handle, Label: v.Label,
		Since: v.Since, Shared: v.Shared, Ttl: v.TTL, Remaining: v.Remaining, Renewed: v.Renewed,
	}
}

// Cycle returns the listed steps of the cycle that a reply names.
func Cycle(r *wire.Reply) (views []WaitView) {
	for _, step := range r.GetCycle().GetWaits() {
		v := WaitView{Name: step.GetName(), Waiter: ownerView(step.GetWaiter()), Holder: ownerView(step.GetHolder())}
		if step.GetElection() {
			v.Space = wire.Space_ELECTION
		}
		views = append(views, v)
	}
	return views
}

func ownerView(o *wire.LockOwner) OwnerView {
	id, _ := wire.IDFrom(o.GetSession())
	return OwnerView{
		Session: id, Name: o.GetName(), Member: o.GetMember(), Client: o.GetClient(), Handle: o.GetHandle(), Label: o.GetLabel(),
		Since: o.GetSince(), Shared: o.GetShared(), TTL: o.GetTtl(), Remaining: o.GetRemaining(), Renewed: o.GetRenewed(),
	}
}
