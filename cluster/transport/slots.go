package transport

import (
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// slots bounds the inbound connections.
type slots struct {
	limits Limits

	mu         sync.Mutex // guards what follows
	handshakes int
	total      int
	taken      map[slot]int
}

type slot struct {
	member uint64
	kind   wire.Kind
}

func newSlots(l Limits) *slots { return &slots{limits: l, taken: make(map[slot]int)} }

// enter admits a connection to its handshake; leave ends that.
func (s *slots) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handshakes >= s.limits.Handshakes {
		return false
	}
	s.handshakes++
	return true
}

func (s *slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handshakes--
}

// take reserves a place for a connection that has introduced itself.
func (s *slots) take(member uint64, kind wire.Kind) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := slot{member, kind}
	limit := s.limits.PerMember
	if kind == wire.Kind_SNAPSHOT {
		limit = 1 // two would install over each other
	}
	if s.total >= s.limits.Connections || s.taken[k] >= limit {
		return nil, false
	}
	s.total++
	s.taken[k]++
	return func() { s.release(k) }, true
}

func (s *slots) release(k slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.taken[k]--; s.taken[k] == 0 {
		delete(s.taken, k)
	}
}
