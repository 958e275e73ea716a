package transport

import (
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// connLimits bounds the inbound connections of members, counted by the identity that they have
// proven, and has the places of clients.
type connLimits struct {
	limits  Limits
	clients *clientPlaces

	mu       sync.Mutex // guards what follows
	total    int
	reserved map[connClass]int
}

// connClass is what Limits.PerMember applies to.
type connClass struct {
	member uint64
	kind   wire.Kind
}

func newConnLimits(l Limits) *connLimits {
	return &connLimits{limits: l, clients: newClientPlaces(l.Clients), reserved: make(map[connClass]int)}
}

// reserve reserves a place for a connection of a proven member.
func (l *connLimits) reserve(member uint64, kind wire.Kind) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	class := connClass{member, kind}
	limit := l.limits.PerMember
	if kind == wire.Kind_SNAPSHOT {
		limit = 1 // concurrent snapshots would overwrite each other
	}
	if l.total >= l.limits.Connections || l.reserved[class] >= limit {
		return nil, false
	}
	l.total++
	l.reserved[class]++
	return func() { l.release(class) }, true
}

func (l *connLimits) release(class connClass) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.reserved[class]--; l.reserved[class] == 0 {
		delete(l.reserved, class)
	}
}
