package machine

import (
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// LockView is a lock at the applied index.
type LockView struct {
	Name    string
	Held    bool
	Session wire.ID // the owner, with Member, Handle, Holds and Fence
	Member  uint64
	Client  bool // Member is a client's ID
	// SessionName is that of the owner. A member of an earlier build does not state it.
	SessionName string `json:",omitempty"`
	Handle      uint64
	Holds       uint32
	Fence       uint64
	// Lingering: the owner keeps the lock for a tenure, in which it grants it by itself, with
	// fences from Fence on.
	Lingering bool
	Label     string // of the owner
	Since     int64  // how long it has been held; -1: unknown
	Waiters   int    // with the sets that wait
	Sets      int    `json:",omitempty"` // of the Waiters: the sets
	Reserved  bool   `json:",omitempty"` // one of these has the lock reserved
	Set       int    `json:",omitempty"` // names of the set that the owner has; 0: the lock alone
	// With is the first other names of that set, MaxWith at most, in its order.
	With  []string `json:",omitempty"`
	Delay int64    // remaining lock-delay; with Held that of other shares, which exclusive requests wait for
	// EndsIn is the time left until the hold ends by its MaxHold; 0: it does not.
	EndsIn int64 `json:",omitempty"`
	// Shared is how many shares a lock has that is held shared, with those of sessions that have
	// ended and are being released. Then the fields of the owner are those of the first share,
	// and Fence is that of all.
	Shared  int         `json:",omitempty"`
	Holders []ShareView `json:",omitempty"` // the first ones by Number, MaxHolders at most
}

// ShareView is a shared hold of a lock.
type ShareView struct {
	OwnerView
	Holds     uint32
	Number    uint64
	Lingering bool `json:",omitempty"`
}

// MaxWith bounds LockView.With.
const MaxWith = 3

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
	Resized   bool  `json:",omitempty"` // the limit is that of a Resize, and not only of those that use the semaphore
	Available int64 // negative while more are held than a smaller limit allows
	Waiters   int
	Holders   []PermitView // the first ones by fence, MaxHolders at most; see HoldersQuery
	Total     int          // of the holders, with those that have ended and are being released
	Delay     int64        // until the first lock-delay of its permits ends
}

// PermitView is one acquisition of permits.
type PermitView struct {
	Session wire.ID
	Member  uint64
	Client  bool // Member is a client's ID
	// SessionName is as in LockView.
	SessionName string `json:",omitempty"`
	Fence       uint64
	Permits     uint32
	Slots       []uint32 `json:",omitempty"` // the permits' numbers, if they have some; never changed
	EndsIn      int64    `json:",omitempty"` // as in LockView
}

func (m *Machine) view(l *lock, page *page) LockView {
	sets := l.sets()
	v := LockView{
		Name: l.name(), Waiters: l.waiters() + sets.len(), Sets: sets.len(), Reserved: sets.reservation(false, 0) != nil,
	}
	switch p := l.phase(); {
	case l.owner == nil && p.isLive():
		sharing{m}.view(&v, l, page)
	case l.owner == nil && p != nil && p.delayed > 0:
		v.Delay = max(0, p.delayUntil-m.now)
	case l.owner == nil:
		v.Delay = max(0, l.delayUntil-m.now)
	case l.owner.dead():
		v.Delay = max(0, l.owner.delayUntil()-m.now)
	default:
		v.Held, v.Session, v.Member, v.Client = true, l.owner.id, l.owner.member, l.owner.client
		v.SessionName = l.owner.name
		v.Handle, v.Holds, v.Fence, v.Lingering, v.Label, v.Since = l.handle, l.holds, l.fence, l.lingering, l.label(), m.age(l.since)
		v.EndsIn, v.Set, v.With = l.bound().left(m.now), l.set().len(), page.others(l.set(), l.key)
	}
	return v
}

// others returns the first names of a set but that of a lock of it.
func (p *page) others(s *set, key string) (names []string) {
	for i := range min(s.len(), MaxWith+1) {
		p.counter.Count()
		if part := &s.parts[i]; part.key != key && len(names) < MaxWith {
			names = append(names, part.key[1:])
			p.bytes -= len(part.key)
		}
	}
	return names
}

// view adds the first shares. It looks at no more than the page may.
func (x sharing) view(v *LockView, l *lock, page *page) {
	p := l.phase()
	v.Shared = p.live.Len()
	until := p.delayUntil
	p.live.Ascend(func(sh *share) bool {
		if sh.owner.dead() {
			until = max(until, sh.owner.delayUntil())
		} else {
			if len(v.Holders) == 0 {
				v.With = page.others(sh.set(), l.key)
			}
			v.Holders = append(v.Holders, x.viewShare(sh))
			page.bytes -= len(sh.owner.name) + len(sh.label)
		}
		return page.visit() && len(v.Holders) < MaxHolders
	})
	v.Delay = max(0, until-x.now)
	if len(v.Holders) == 0 {
		return
	}
	first := v.Holders[0]
	v.Held, v.Session, v.Member, v.Client, v.SessionName = true, first.Session, first.Member, first.Client, first.Name
	v.Handle, v.Holds, v.Fence, v.Lingering, v.Label, v.Since = first.Handle, first.Holds, p.fence, first.Lingering, first.Label, first.Since
	v.EndsIn, v.Set = first.EndsIn, first.Set
}

func (x sharing) viewShare(sh *share) ShareView {
	owner := x.viewOwner(sh.owner, OwnerView{Handle: sh.handle, Label: sh.label, Since: x.age(sh.since), Shared: true, Set: sh.set().len(), EndsIn: sh.ending().left(x.now)})
	return ShareView{OwnerView: owner, Holds: sh.holds, Number: sh.number, Lingering: sh.lingering}
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

// viewSemaphore lists the first holders. It looks at no more than the page may.
func (m *Machine) viewSemaphore(s *semaphore, page *page) SemaphoreView {
	v := SemaphoreView{Name: s.name(), Limit: s.limit, Resized: s.resized, Available: s.free(), Waiters: s.queue.Len, Total: s.held.Len()}
	s.held.Ascend(func(p *permit) bool {
		if !p.owner.dead() {
			v.Holders = append(v.Holders, bounding{m}.viewPermit(p))
			page.bytes -= p.listedBytes()
		}
		return page.visit() && len(v.Holders) < MaxHolders
	})
	if p := s.back.first(); p != nil {
		v.Delay = max(0, p.delayUntil-m.now)
	}
	return v
}

func (x bounding) viewPermit(p *permit) PermitView {
	return PermitView{
		Session: p.owner.id, Member: p.owner.member, Client: p.owner.client, SessionName: p.owner.name, Fence: p.fence, Permits: p.n, Slots: p.slots,
		EndsIn: p.end.left(x.now),
	}
}

// listedBytes is about what the session's name and the numbers take in a listing.
func (p *permit) listedBytes() int { return len(p.owner.name) + 8*len(p.slots) }

// listedBytes is about what the names, the label and the leader's value take in a listing.
func (l *lock) listedBytes() int {
	n := len(l.name()) + len(l.label()) + l.leader().Bytes()
	if l.owner != nil {
		n += len(l.owner.name)
	}
	return n
}

// listedBytes is about what the names of the session and its checks take in a listing.
func (s *session) listedBytes() int {
	n := len(s.name)
	for _, check := range s.checks {
		n += len(check)
	}
	return n
}

// Liveness returns what the failure detector last reported of each registered member that was
// not removed, by ID.
func (m *Machine) Liveness() []fact.MemberLiveness {
	var views []fact.MemberLiveness
	for _, r := range m.Members() {
		if k := m.members[r.ID]; r.Registered {
			m.visits.Count()
			views = append(views, fact.MemberLiveness{
				Member: k.id, Boot: k.boot, Silent: k.silent, Registered: m.process(k) != nil, Crashed: k.crashed,
			})
		}
	}
	return views
}
