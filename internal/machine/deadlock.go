package machine

import "github.com/conclave-go/conclave/internal/wire"

// deadlocks is a machine as far as it refuses requests whose wait would close a cycle. That is decided when the request
// would be queued, by the cycles through its own wait. While each session waits for one lock at a time, and all refuse deadlocks, nothing
// else closes one: a lock is granted to a session that has waited for it, and that waits no more, and names are not reserved for
// a set where that would.
type deadlocks struct{ *Machine }

// searched bounds the searches for deadlocks as maxWalked does those of queries.
type searched struct {
	each, all        int // MaxSearched, MaxAllSearched; smaller ones in tests
	members, clients int // what searches for them have looked at in the present entry
	sets, clientSets int // likewise, those before a reservation: for sets of members and of clients
}

// of returns the sum that the command being applied counts in.
func (x deadlocks) of() *int {
	if x.forClient {
		return &x.searched.clients
	}
	return &x.searched.members
}

// mayQueue is mayWait of a waiter, which is copied to the heap only for a search.
func (x deadlocks) mayQueue(w *waiter, wanted bool) *wire.Reply {
	if !wanted {
		return nil
	}
	searched := *w
	return x.mayWait(request{waiter: &searched}, true)
}

// mayWait refuses a request that may not be queued, if that is wanted.
func (x deadlocks) mayWait(w request, wanted bool) *wire.Reply {
	if !wanted || x.levels.agreed < wire.LevelDeadlock {
		return nil
	}
	path := x.closedBy(w, x.of())
	if path == nil {
		return nil
	}
	if w.set != nil {
		w.set.since = x.stamp()
	} else {
		w.waiter.since = x.stamp()
	}
	r := x.reply(wire.Code_DEADLOCK)
	r.Cycle = x.listed(path)
	return r
}

// seesReservations reports whether the group is at the level from which on searches see each reservation, also before it is made.
func (x deadlocks) seesReservations() bool { return x.levels.agreed >= wire.LevelReserve }

// mayReserve reports whether names that were just reserved for a set may stay so: of one that refuses deadlocks, unless they
// close a cycle. Other sessions hold and await for many tasks, and such a cycle is no deadlock.
func (x deadlocks) mayReserve(s *set) bool {
	sum := &x.searched.sets
	if s.session.client && x.levels.agreed >= wire.LevelApart {
		sum = &x.searched.clientSets
	}
	return !s.refuses || x.closedBy(request{set: s}, sum) == nil
}

// closedBy returns a shortest cycle that the wait would close; nil: there is none, or it was not found within the
// bounds. sum counts what the searches of its kind have looked at.
func (x deadlocks) closedBy(w request, sum *int) []wait {
	s := w.session()
	if !s.isInTheWay() {
		return nil
	}
	most := min(x.searched.each, x.searched.all-*sum)
	left := most
	search := search{to: s, left: &left, visits: &x.visits, by: make(map[*session]wait), inUse: true, each: x.seesReservations()}
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
		Since: v.Since, Shared: v.Shared, Set: uint32(v.Set), Reserved: v.Reserved, Ttl: v.TTL, Remaining: v.Remaining, Renewed: v.Renewed,
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
		Since: o.GetSince(), Shared: o.GetShared(), Set: int(o.GetSet()), Reserved: o.GetReserved(), TTL: o.GetTtl(), Remaining: o.GetRemaining(), Renewed: o.GetRenewed(),
	}
}
