package machine

import (
	"maps"
	"slices"
	"strings"

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
	Delay   int64 // lock-delay left
}

// SessionView is a session at the applied index.
type SessionView struct {
	ID          wire.ID
	Name        string
	Incarnation wire.ID
	Member      uint64
	TTL         int64
	LockDelay   int64
	Remaining   int64 // until it ends by time, unless renewed
	CreateIndex uint64
}

// Acquired says what became of a Lock that was answered with QUEUED. Neither
// Waiting nor Held: the place or the hold is gone.
type Acquired struct {
	Waiting, Held bool
	Fence         uint64 // with Held
	Holds         uint32
}

// Lock returns the lock's state; ok is false for a name that is idle.
func (m *Machine) Lock(name string) (v LockView, ok bool) {
	l := m.locks[name]
	if l == nil {
		return LockView{}, false
	}
	return m.view(l), true
}

// Locks returns the first max locks, by name, whose names begin with prefix.
func (m *Machine) Locks(prefix string, max int) []LockView {
	var names []string
	for name := range m.locks { // order: sorted below
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	views := make([]LockView, min(max, len(names)))
	for i := range views {
		views[i] = m.view(m.locks[names[i]])
	}
	return views
}

func (m *Machine) view(l *lock) LockView {
	v := LockView{Name: l.name(), Waiters: l.queue.len, Handle: l.handle, Holds: l.holds, Fence: l.fence}
	if l.owner != nil {
		v.Held, v.Session, v.Member = true, l.owner.id, l.owner.incarnation.member
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
	return SessionView{
		ID: s.id, Name: s.name, Incarnation: s.incarnation.id, Member: s.incarnation.member,
		TTL: s.ttl, LockDelay: s.lockDelay, Remaining: s.deadline() - m.now, CreateIndex: s.createIndex,
	}
}

// Acquisition says what became of a Lock by its ticket, for a member that
// missed outcomes because it installed a snapshot.
func (m *Machine) Acquisition(name string, t wire.Ticket) Acquired {
	if inc := m.incarnation(t.Incarnation); inc != nil {
		if w := inc.waiting[t.Seq]; w != nil && w.lock.name() == name {
			return Acquired{Waiting: true}
		}
	}
	if l := m.locks[name]; l != nil && l.owner != nil && l.ticket == t {
		return Acquired{Held: true, Fence: l.fence, Holds: l.holds}
	}
	return Acquired{}
}

// Incarnation reports whether the incarnation is known.
func (m *Machine) Incarnation(id wire.ID) (known bool) { return m.incarnation(id) != nil }
