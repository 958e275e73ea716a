package machine

import (
	"math"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// Query is a read of the state as a value. Begin runs on the machine's goroutine,
// in bounded time, and must not block; the function that it returns runs on any
// goroutine, while the machine goes on, and returns the answer.
//
// A listing is read in pages: each one continues after the last object of the
// page before it, and the listing ends with an empty page. A page may be shorter
// than asked for.
//
// Begin looks at MaxVisits objects at most, whatever the size of the state, since no
// command is applied meanwhile; what needs more is a page, or a copy of the state that
// finish reads.
type Query interface {
	Begin(m *Machine) (finish func() any)
}

const (
	// MaxPage is the largest Limit of a query; 0 and larger limits mean the same.
	MaxPage = 1024
	// MaxHolders bounds the holders that are listed with a semaphore: the oldest ones.
	MaxHolders = MaxPage
	// MaxVisits bounds what Begin of a query looks at: objects, and comparisons of them.
	// Most look at a page of objects; the most expensive listing first merges 2 * ordered.MaxMerged
	// names into a tree of a million.
	MaxVisits = 1 << 17
	// pageBytes ends a page early: values and names may be long. The last object of the page
	// may exceed it.
	pageBytes = 1 << 20
	// pageVisits ends a page of semaphores or locks early: their holders are listed as well.
	pageVisits = 8 * MaxPage
)

// page is what a page of a listing may still take.
type page struct {
	counter               *ordered.Visits
	items, bytes, visited int
}

func (m *Machine) newPage(limit int) *page {
	return &page{counter: &m.visits, items: limited(limit), bytes: pageBytes, visited: pageVisits}
}

// add counts an item of that many bytes, and reports whether another one fits.
func (p *page) add(bytes int) (more bool) {
	p.items--
	p.bytes -= bytes
	return p.visit() && p.items > 0 && p.bytes > 0
}

// visit counts an object that is looked at, and reports whether another one may be.
func (p *page) visit() (more bool) {
	p.counter.Count()
	p.visited--
	return p.visited > 0
}

// Ask answers a query at once. An answer that is absent is the zero A.
func Ask[A any](m *Machine, q Query) A {
	a, _ := q.Begin(m)().(A)
	return a
}

// answered returns a finish function for an answer that is complete already.
func answered(a any) func() any { return func() any { return a } }

// limited is a Limit as it applies.
func limited(limit int) int {
	if limit <= 0 || limit > MaxPage {
		return MaxPage
	}
	return limit
}

// pageOf returns views of up to limit locks or elections.
func pageOf[V any](m *Machine, election bool, prefix, after string, limit int, view func(*lock, *page) V) []V {
	var views []V
	p := m.newPage(limit)
	pivot := &lock{key: lockKey(election, max(prefix, after))}
	m.space(election).index.Page(pivot, prefix, after, func(l *lock) bool {
		views = append(views, view(l, p))
		return p.add(l.listedBytes()) && p.visited >= 2*MaxHolders
	})
	return views
}

// LockQuery asks for a lock or, with Space ELECTION, an election.
// The answer is a *LockView: nil if the name is idle.
type LockQuery struct {
	Space wire.Space
	Name  string
}

// Begin implements [Query].
func (q LockQuery) Begin(m *Machine) func() any {
	l := m.space(q.Space == wire.Space_ELECTION).byName[q.Name]
	if l == nil || q.Space == wire.Space_SEMAPHORE || q.Space == wire.Space_JOB {
		return answered((*LockView)(nil))
	}
	v := m.view(l, m.newPage(0))
	return answered(&v)
}

// LocksQuery asks for locks or, with Space ELECTION, elections.
// The answer is a []LockView by name.
type LocksQuery struct {
	Space         wire.Space
	Prefix, After string
	Limit         int
}

// Begin implements [Query].
func (q LocksQuery) Begin(m *Machine) func() any {
	if q.Space == wire.Space_SEMAPHORE || q.Space == wire.Space_JOB {
		return answered([]LockView(nil))
	}
	return answered(pageOf(m, q.Space == wire.Space_ELECTION, q.Prefix, q.After, q.Limit, m.view))
}

// LeaderQuery asks for the leader of an election.
// The answer is a *fact.Leader: nil if there is none.
type LeaderQuery struct{ Election string }

// Begin implements [Query].
func (q LeaderQuery) Begin(m *Machine) func() any {
	l := m.elections.byName[q.Election]
	if l == nil {
		return answered((*fact.Leader)(nil))
	}
	return answered(l.leaderNow())
}

// LeadersQuery asks for elections that have a leader, or had one whose lock-delay
// runs. The answer is a []LeaderView by name.
type LeadersQuery struct {
	Prefix, After string
	Limit         int
}

// LeaderView is an election at the applied index.
type LeaderView struct {
	Name   string
	Leader *fact.Leader // nil: none
	// SessionName and Client are as in LockView, of the leader.
	SessionName string `json:",omitempty"`
	Client      bool   `json:",omitempty"`
}

// Begin implements [Query].
func (q LeadersQuery) Begin(m *Machine) func() any {
	return answered(pageOf(m, true, q.Prefix, q.After, q.Limit, func(l *lock, _ *page) LeaderView {
		v := LeaderView{Name: l.name(), Leader: l.leaderNow()}
		if v.Leader != nil && l.owner != nil {
			v.SessionName, v.Client = l.owner.name, l.owner.client
		}
		return v
	}))
}

// SemaphoreQuery asks for a semaphore, with its first MaxHolders holders.
// The answer is a *SemaphoreView: nil if the name is idle.
type SemaphoreQuery struct{ Name string }

// Begin implements [Query].
func (q SemaphoreQuery) Begin(m *Machine) func() any {
	s := m.semaphores.byName[q.Name]
	if s == nil {
		return answered((*SemaphoreView)(nil))
	}
	v := m.viewSemaphore(s, m.newPage(0))
	return answered(&v)
}

// SemaphoresQuery asks for semaphores, each with its first MaxHolders holders at most. The
// answer is a []SemaphoreView by name.
type SemaphoresQuery struct {
	Prefix, After string
	Limit         int
}

// Begin implements [Query].
func (q SemaphoresQuery) Begin(m *Machine) func() any {
	var views []SemaphoreView
	p := m.newPage(q.Limit)
	pivot := &semaphore{key: semaphoreKey(max(q.Prefix, q.After))}
	m.semaphores.index.Page(pivot, q.Prefix, q.After, func(s *semaphore) bool {
		views = append(views, m.viewSemaphore(s, p))
		return p.add(len(s.name())) && p.visited >= 2*MaxHolders
	})
	return answered(views)
}

// HoldersQuery asks for the holders of a semaphore. The answer is a HoldersView.
type HoldersQuery struct {
	Name  string
	After uint64 // fence
	Limit int
}

// HoldersView is a page of the holders of a semaphore. The listing is complete when it says
// so, not with an empty page.
type HoldersView struct {
	Holders []PermitView // by fence
	Next    uint64       // to continue after
	Done    bool         // nothing follows
}

// Begin implements [Query].
func (q HoldersQuery) Begin(m *Machine) func() any {
	v := HoldersView{Next: q.After, Done: true}
	s := m.semaphores.byName[q.Name]
	if s == nil || q.After == math.MaxUint64 {
		return answered(v)
	}
	p := m.newPage(q.Limit)
	s.held.AscendGreaterOrEqual(&permit{fence: q.After + 1}, func(at *permit) bool {
		if p.items == 0 || p.visited == 0 || p.bytes <= 0 {
			v.Done = false
			return false
		}
		p.visit()
		v.Next = at.fence
		if !at.owner.dead() {
			p.items--
			p.bytes -= at.listedBytes()
			v.Holders = append(v.Holders, bounding{m}.viewPermit(at))
		}
		return true
	})
	return answered(v)
}

// Counts is how much a state has of each kind.
type Counts struct {
	Sessions, Locks, Elections, Semaphores int // those in use: held, or in a lock-delay
	Waiters                                int
	Keys, Checks                           int
	Clients                                int // registered
}

// Counts returns how much the state has of each kind. It takes the same short time for a
// state of any size.
func (m *Machine) Counts() Counts {
	return Counts{
		Sessions: len(m.sessions) - m.ending.Len, Locks: len(m.locks.byName), Elections: len(m.elections.byName),
		Semaphores: len(m.semaphores.byName), Waiters: m.waiting,
		Keys: m.keys.tree.Len(), Checks: m.checks.Len(), Clients: m.registry.clients,
	}
}

// Approximate bytes on disk, and in a snapshot, of what is not a key: see
// docs/PERFORMANCE.md.
const (
	sessionSize = 64
	heldSize    = 56 // a lock, an election, a share or a semaphore, without its value and label
	setSize     = 64 // a set, without its names and label
)

// Size returns the approximate size of the state in bytes, as a snapshot carries it. It
// costs nothing.
func (m *Machine) Size() uint64 {
	held := len(m.locks.byName) + len(m.elections.byName) + len(m.semaphores.byName) + m.shares
	return uint64(m.keys.bytes + m.candidates + m.labels + m.sets.bytes + m.semaphores.numbers.Bytes() + len(m.sessions)*sessionSize + held*heldSize)
}
