package client

// The table of live leases. Leases enter it when the group has agreed (opening.go)
// and leave it when they end.

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/leaseclock"
	"github.com/conclave-go/conclave/internal/wire"
)

// leases is the table of live leases. It may be used on any goroutine.
type leases struct {
	life           *lifetime
	clock          *leaseclock.Clock
	incarnationTTL time.Duration // how long a renewal of the registration lasts
	lookAt         atomic.Int64  // the instant at which look looks at all leases again

	byID    map[wire.ID]*Lease // guarded by mu of life; live ones
	own     *Lease             // guarded by mu of life; the client's own, if it has one
	opening *sharedOpening     // guarded by mu of life; of the client's own lease
}

// track enters a lease into the table; false means that the client is closing.
func (s *leases) track(l *Lease) bool {
	s.life.mu.Lock()
	if s.life.closing {
		s.life.mu.Unlock()
		return false
	}
	s.byID[l.id] = l
	s.life.mu.Unlock()
	if l.Err() != nil {
		s.drop(l) // its deadline came before this
	}
	return true
}

// drop removes a lease that has ended.
func (s *leases) drop(l *Lease) {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	if s.byID[l.id] == l {
		delete(s.byID, l.id)
	}
	if s.own == l {
		s.own = nil
	}
}

// ownOf returns the given lease, or the client's own if it is nil; nil: there is none, or the client is closing.
func (s *leases) ownOf(fixed *Lease) *Lease {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	if s.life.closing {
		return nil
	}
	return cmp.Or(fixed, s.own)
}

// lease returns a live lease, or nil.
func (s *leases) lease(id wire.ID) *Lease {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	return s.byID[id]
}

func (s *leases) live() []*Lease {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	list := make([]*Lease, 0, len(s.byID))
	for _, l := range s.byID {
		list = append(list, l)
	}
	return list
}

// smallestSpan is the smallest time for which a renewal lasts, of the live leases and of
// the registration.
func (s *leases) smallestSpan() time.Duration {
	smallest := s.incarnationTTL
	for _, l := range s.live() {
		if l.span != NoTTL {
			smallest = min(smallest, l.span)
		}
	}
	return smallest
}

// Sessions returns the sessions of the live leases.
func (s *leases) Sessions() (ids []wire.ID) {
	for _, l := range s.live() {
		ids = append(ids, l.id)
	}
	return ids
}

// unused reports whether no lease is used, and returns the client's own; nil: it has none.
func (s *leases) unused() (own *Lease, ok bool) {
	s.life.mu.Lock()
	own = s.own
	ok = s.opening == nil && (len(s.byID) == 0 || len(s.byID) == 1 && own != nil)
	s.life.mu.Unlock()
	return own, ok && (own == nil || own.isUnused())
}

// RenewalInterval is how often this process renews its registration and its leases.
func (s *leases) RenewalInterval() time.Duration { return s.smallestSpan() / 3 }

// NoLease is what Left returns without a lease that ends by time.
const NoLease = 24 * time.Hour

// Left returns for how long all leases of this process last without another renewal.
func (s *leases) Left() time.Duration {
	left := NoLease
	for _, l := range s.live() {
		l.mu.Lock()
		if at, _ := l.deadline(); at != never {
			left = min(left, s.clock.Until(at))
		}
		l.mu.Unlock()
	}
	return max(left, 0)
}

// look checks the deadlines of all leases if one is due, or the machine was suspended. It reports whether it has. A busy loop
// wakes many times in a millisecond: Now makes a system call once in it. A heartbeat wakes the loop later than that.
func (s *leases) look() bool {
	if s.clock.Now() < instant(s.lookAt.Load()) {
		return false
	}
	s.lookAt.Store(int64(never))
	for _, l := range s.live() {
		if l.Err() == nil {
			l.mu.Lock()
			l.setTimer()
			l.mu.Unlock()
			l.checkBounds()
		}
	}
	return true
}

// lookBy has look look at all leases no later than then.
func (s *leases) lookBy(at instant) {
	for {
		planned := s.lookAt.Load()
		if int64(at) >= planned || s.lookAt.CompareAndSwap(planned, int64(at)) {
			return
		}
	}
}

// unbindAll ends the leases without TTL that were bound to an incarnation whose
// registration has expired. Their sessions live on, unbound, and another process
// may attach them. Sessions with a TTL have ended with the registration; their
// leases end at their deadlines.
func (s *leases) unbindAll(incarnation wire.ID) {
	for _, l := range s.live() {
		if l.ttl == NoTTL && l.incarnation == incarnation {
			l.end(unbound(), lost)
		}
	}
}

// Sizes returns how many leases are live, and how many holds they have.
func (s *leases) Sizes() (leases, holds int) {
	for _, l := range s.live() {
		leases++
		l.mu.Lock()
		holds += len(l.holds)
		for h := range l.parts { // order: it is a sum
			holds += h.part.gate.Holds()
		}
		l.mu.Unlock()
	}
	return leases, holds
}
