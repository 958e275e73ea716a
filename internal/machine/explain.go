package machine

import (
	"iter"

	"github.com/conclave-go/conclave/internal/wire"
)

// Why a lock is not available: its owner, and the queue for it.

// ExplainQuery asks for a lock or, with Space ELECTION, an election, with its owner's lease,
// the first waiters, and a cycle of waiting sessions that keeps the owner from releasing it.
// The answer is an *ExplainView: nil if the name is idle.
type ExplainQuery struct {
	Space wire.Space
	Name  string
	Limit int // of waiters
}

// ExplainView is a lock, its owner and its queue at the applied index.
type ExplainView struct {
	LockView
	Owner OwnerView   // with Held; of the first share if it is held shared
	Queue []OwnerView // the first waiters, in order
	Cycle []WaitView  // through the session of the owner, or of one of the Holders, from its waiter on; nil: none was found
}

// OwnerView is a handle that holds a lock or waits for it, and its session's lease.
type OwnerView struct {
	Session   wire.ID
	Name      string // of the session
	Member    uint64
	Client    bool // Member is a client's ID
	Handle    uint64
	Label     string
	Since     int64 // how long it has the lock or waits; -1: unknown
	Shared    bool  `json:",omitempty"` // it has, or waits for, a share
	Set       int   `json:",omitempty"` // names of the set that it has, or waits for; 0: the lock alone
	Reserved  bool  `json:",omitempty"` // it waits, and the names of its set are reserved for it
	TTL       int64 // 0: none
	Remaining int64 // until the session expires unless renewed; 0 without TTL
	EndsIn    int64 `json:",omitempty"` // of a holder: as in LockView
	Renewed   int64 // since the last renewal; -1: the session is unbound, so nothing renews it
}

// Begin implements [Query].
func (q ExplainQuery) Begin(m *Machine) func() any {
	l := m.space(q.Space == wire.Space_ELECTION).byName[q.Name]
	if l == nil || q.Space == wire.Space_SEMAPHORE || q.Space == wire.Space_JOB {
		return answered((*ExplainView)(nil))
	}
	v := &ExplainView{LockView: m.view(l, m.newPage(0))}
	left := maxWalked
	switch {
	case !v.Held:
	case v.Shared > 0:
		v.Owner = v.Holders[0].OwnerView
		v.Cycle = sharing{m}.cycleOf(l, &left)
	default:
		v.Owner = m.viewHolder(l)
		path, _ := l.owner.cycle(&left, &m.visits)
		v.Cycle = m.viewCycle(path)
	}
	n := 0
	for r, shared := range requests(l) {
		if n++; n > limited(q.Limit) {
			break
		}
		m.visits.Count()
		if !r.session().dead() {
			v.Queue = append(v.Queue, r.view(m, shared))
		}
	}
	return answered(v)
}

// cycleOf returns a cycle through the session of one of the first shares.
func (x sharing) cycleOf(l *lock, left *int) (views []WaitView) {
	seen := 0
	l.phase().live.Ascend(func(sh *share) bool {
		x.visits.Count()
		if !sh.owner.dead() {
			path, _ := sh.owner.cycle(left, &x.visits)
			views = x.viewCycle(path)
		}
		seen++
		*left--
		return len(views) == 0 && *left > 0 && seen < MaxHolders
	})
	return views
}

func (m *Machine) viewHolder(l *lock) OwnerView {
	return m.viewOwner(l.owner, OwnerView{
		Handle: l.handle, Label: l.label(), Since: m.age(l.since), Set: l.set().len(), EndsIn: l.bound().left(m.now),
	})
}

// requests iterates over what waits for a lock, by position, and whether it wants a share. The loop counts.
func requests(l *lock) iter.Seq2[request, bool] {
	return func(yield func(request, bool) bool) {
		sets, w := l.sets().candidates(0, 0), l.head()
		for more := true; more; {
			before := uint64(0)
			if w != nil {
				before = w.position
			}
			switch p := sets.next(before); {
			case p != nil:
				more = yield(request{set: p.set}, p.shared)
			case w != nil:
				more = yield(request{waiter: w}, w.shared)
				w = w.inQueue.Next()
			default:
				return
			}
		}
	}
}

// view describes a request that waits for a lock, or for a share of it.
func (r request) view(m *Machine, shared bool) OwnerView {
	s := r.set
	if s == nil {
		return m.viewWaiter(r.waiter)
	}
	return m.viewOwner(s.session, OwnerView{
		Handle: s.handle, Label: s.label, Since: m.age(s.since), Shared: shared, Set: len(s.parts), Reserved: s.reserves(),
	})
}

func (m *Machine) viewWaiter(w *waiter) OwnerView {
	return m.viewOwner(w.session, OwnerView{Handle: w.handle, Label: w.label, Since: m.age(w.since), Shared: w.shared})
}

// age returns the time that has passed since a stamp, or -1.
func (m *Machine) age(since int64) int64 {
	if since == 0 {
		return -1
	}
	return m.now - since
}

// viewOwner completes a view by what concerns the session.
func (m *Machine) viewOwner(s *session, v OwnerView) OwnerView {
	v.Session, v.Name, v.Member, v.Client, v.TTL, v.Renewed = s.id, s.name, s.member, s.client, s.ttl, -1
	if s.standalone || s.incarnation != nil {
		v.Renewed = m.now - s.lastRenewed()
	}
	if s.ttl != 0 {
		v.Remaining = s.deadline() - m.now
	}
	return v
}
