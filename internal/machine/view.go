package machine

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/wire"
)

// LockView is a lock at the applied index.
type LockView struct {
	Name    string
	Held    bool
	Session wire.ID // the owner, with Member, Handle, Holds and Fence
	Member  uint64
	Handle  uint64
	Holds   uint32
	Fence   uint64
	Waiters int
	Delay   int64 // remaining lock-delay
}

// SessionView is a session at the applied index.
type SessionView struct {
	ID          wire.ID
	Name        string
	Incarnation wire.ID
	Member      uint64
	TTL         int64 // 0: none
	LockDelay   int64
	Remaining   int64 // until it expires unless renewed; 0 without TTL
	CreateIndex uint64
	Behavior    wire.Behavior
	Checks      []string
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
	Fence   uint64
	Permits uint32
}

// Keys is all keys at one index. Any goroutine may read it while the machine goes
// on.
type Keys struct{ tree *btree.BTreeG[*wire.Entry] }

// Lock returns the lock's state; ok is false for a name that is idle.
func (m *Machine) Lock(name string) (v LockView, ok bool) {
	l := m.locks.byName[name]
	if l == nil {
		return LockView{}, false
	}
	return m.view(l), true
}

// Locks returns the first max locks, by name, whose names begin with prefix.
func (m *Machine) Locks(prefix string, max int) []LockView {
	var names []string
	for name := range m.locks.byName { // order: sorted below
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	views := make([]LockView, min(max, len(names)))
	for i := range views {
		views[i] = m.view(m.locks.byName[names[i]])
	}
	return views
}

func (m *Machine) view(l *lock) LockView {
	v := LockView{Name: l.name(), Waiters: l.waiters(), Handle: l.handle, Holds: l.holds, Fence: l.fence}
	if l.owner != nil {
		v.Held, v.Session, v.Member = true, l.owner.id, l.owner.member
	} else {
		v.Delay = l.delayUntil - m.now
	}
	return v
}

// Session returns a live session.
func (m *Machine) Session(id wire.ID) (v SessionView, ok bool) {
	s := m.sessions[id]
	if s == nil {
		return SessionView{}, false
	}
	return m.viewSession(s), true
}

// Sessions returns the live sessions, by create index.
func (m *Machine) Sessions() []SessionView {
	var views []SessionView
	for _, s := range slices.SortedFunc(maps.Values(m.sessions), byCreation) {
		views = append(views, m.viewSession(s))
	}
	return views
}

func (m *Machine) viewSession(s *session) SessionView {
	v := SessionView{
		ID: s.id, Name: s.name, Member: s.member, TTL: s.ttl, LockDelay: s.lockDelay,
		CreateIndex: s.createIndex, Behavior: s.behavior, Checks: s.checks,
	}
	if s.incarnation != nil {
		v.Incarnation = s.incarnation.id
	}
	if s.ttl != 0 {
		v.Remaining = s.deadline() - m.now
	}
	return v
}

// Incarnation reports whether the incarnation is registered.
func (m *Machine) Incarnation(id wire.ID) (known bool) { return m.incarnation(id) != nil }

// Changes is the index of the last change to a key.
func (m *Machine) Changes() uint64 { return m.keys.changes }

// Key returns a key's entry, or nil.
func (m *Machine) Key(key string) *wire.Entry { return m.keys.get(key) }

// Keys returns all keys as they are now, in O(1).
func (m *Machine) Keys() Keys { return Keys{m.keys.tree.Clone()} }

// Prefix iterates over the entries whose keys begin with prefix, by bytes.
func (k Keys) Prefix(prefix string) iter.Seq[*wire.Entry] {
	return func(yield func(*wire.Entry) bool) {
		k.tree.AscendGreaterOrEqual(&wire.Entry{Key: prefix}, func(e *wire.Entry) bool {
			return strings.HasPrefix(e.Key, prefix) && yield(e)
		})
	}
}

// Semaphore returns the semaphore's state; ok is false for a name that is idle.
func (m *Machine) Semaphore(name string) (v SemaphoreView, ok bool) {
	s := m.semaphores.byName[name]
	if s == nil {
		return SemaphoreView{}, false
	}
	return m.viewSemaphore(s), true
}

func (m *Machine) viewSemaphore(s *semaphore) SemaphoreView {
	v := SemaphoreView{Name: s.name(), Limit: s.limit, Available: s.free(), Waiters: s.queue.len}
	s.held.Ascend(func(p *permit) bool {
		v.Holders = append(v.Holders, PermitView{Session: p.owner.id, Member: p.owner.member, Fence: p.fence, Permits: p.n})
		return true
	})
	if len(s.back) > 0 {
		v.Delay = s.back[0].delayUntil - m.now
	}
	return v
}

// Leader returns the leader of the election, or nil.
func (m *Machine) Leader(election string) *wire.Leader {
	if l := m.elections.byName[election]; l != nil {
		return l.leader()
	}
	return nil
}

// Liveness returns what the failure detector last reported of each member, by ID.
func (m *Machine) Liveness() []wire.MemberLiveness {
	var views []wire.MemberLiveness
	for _, k := range slices.SortedFunc(maps.Values(m.members), func(a, b *member) int {
		return cmp.Compare(a.id, b.id)
	}) {
		views = append(views, wire.MemberLiveness{Member: k.id, Boot: k.boot, Silent: k.silent})
	}
	return views
}
