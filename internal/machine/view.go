package machine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// LockView is a lock at the applied index.
type LockView struct {
	Name    string
	Held    bool
	Session wire.ID // the owner, with Member, Handle, Holds and Fence
	Member  uint64
	Client  bool // Member is a client's ID
	Handle  uint64
	Holds   uint32
	Fence   uint64
	// Lingering: the owner keeps the lock for a tenure, in which it grants it by itself, with
	// fences from Fence on.
	Lingering bool
	Label     string // of the owner
	Since     int64  // how long it has been held; -1: unknown
	Waiters   int
	Delay     int64 // remaining lock-delay
}

// SessionView is a session at the applied index.
type SessionView struct {
	ID          wire.ID
	Name        string
	Incarnation wire.ID
	Member      uint64
	Client      bool  // Member is a client's ID
	TTL         int64 // 0: none
	LockDelay   int64
	Remaining   int64 // until it expires unless renewed; 0 without TTL
	CreateIndex uint64
	Behavior    wire.Behavior
	Checks      []string
	Standalone  bool // bound to no process, ever
}

// SemaphoreView is a semaphore at the applied index.
type SemaphoreView struct {
	Name      string
	Limit     uint32
	Available int64 // negative while more are held than a smaller limit allows
	Waiters   int
	Holders   []PermitView // by fence
	Delay     int64        // until the first lock-delay of its permits ends
}

// PermitView is one acquisition of permits.
type PermitView struct {
	Session wire.ID
	Member  uint64
	Client  bool // Member is a client's ID
	Fence   uint64
	Permits uint32
}

func (m *Machine) view(l *lock) LockView {
	v := LockView{Name: l.name(), Waiters: l.waiters()}
	switch {
	case l.owner == nil:
		v.Delay = max(0, l.delayUntil-m.now)
	case l.owner.dead():
		v.Delay = max(0, l.owner.delayUntil()-m.now)
	default:
		v.Held, v.Session, v.Member, v.Client = true, l.owner.id, l.owner.member, l.owner.client
		v.Handle, v.Holds, v.Fence, v.Lingering, v.Label, v.Since = l.handle, l.holds, l.fence, l.lingering, l.label(), m.age(l.since)
	}
	return v
}

func (m *Machine) viewSession(s *session) SessionView {
	v := SessionView{
		ID: s.id, Name: s.name, Member: s.member, Client: s.client, TTL: s.ttl, LockDelay: s.lockDelay,
		CreateIndex: s.createIndex, Behavior: s.behavior, Checks: s.checks, Standalone: s.standalone,
	}
	if s.incarnation != nil {
		v.Incarnation = s.incarnation.id
	}
	if s.ttl != 0 {
		v.Remaining = s.deadline() - m.now
	}
	return v
}

func (m *Machine) viewSemaphore(s *semaphore) SemaphoreView {
	v := SemaphoreView{Name: s.name(), Limit: s.limit, Available: s.free(), Waiters: s.queue.len}
	s.held.Ascend(func(p *permit) bool {
		if p.owner.dead() {
			return true
		}
		v.Holders = append(v.Holders, PermitView{Session: p.owner.id, Member: p.owner.member, Client: p.owner.client, Fence: p.fence, Permits: p.n})
		return true
	})
	if p := s.back.first(); p != nil {
		v.Delay = max(0, p.delayUntil-m.now)
	}
	return v
}

// Liveness returns what the failure detector last reported of each registered member, by ID.
func (m *Machine) Liveness() []wire.MemberLiveness {
	var views []wire.MemberLiveness
	for _, k := range slices.SortedFunc(maps.Values(m.members), func(a, b *member) int {
		return cmp.Compare(a.id, b.id)
	}) {
		if k.isRegistered() {
			views = append(views, wire.MemberLiveness{Member: k.id, Boot: k.boot, Silent: k.silent})
		}
	}
	return views
}
