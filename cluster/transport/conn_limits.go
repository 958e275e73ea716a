package transport

import (
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// connLimits bounds the inbound connections of members and clients. Those of members are
// counted by the identity that they have proven.
type connLimits struct {
	limits Limits

	mu       sync.Mutex // guards what follows
	clients  int
	total    int
	reserved map[connClass]int
}

// connClass is what Limits.PerMember applies to.
type connClass struct {
	member uint64
	kind   wire.Kind
}

func newConnLimits(l Limits) *connLimits {
	return &connLimits{limits: l, reserved: make(map[connClass]int)}
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

// reserveClient reserves a place for a connection of a proven client.
func (l *connLimits) reserveClient() (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients >= l.limits.Clients {
		return nil, false
	}
	l.clients++
	return l.releaseClient, true
}

func (l *connLimits) releaseClient() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients--
}
