package slots

import (
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// Members bounds the inbound connections of members, counted by the identity that they have
// proven.
type Members struct {
	limit, perMember int

	mu       sync.Mutex // guards what follows
	total    int
	reserved map[class]int
}

// class is what perMember applies to.
type class struct {
	member uint64
	kind   wire.Kind
}

// NewMembers returns slots for limit connections, of which each member has at most perMember of one kind.
func NewMembers(limit, perMember int) *Members {
	return &Members{limit: limit, perMember: perMember, reserved: make(map[class]int)}
}

// Reserve reserves a place for a connection of a proven member.
func (l *Members) Reserve(member uint64, kind wire.Kind) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, most := class{member, kind}, l.perMember
	if kind == wire.Kind_SNAPSHOT {
		most = 1 // concurrent snapshots would overwrite each other
	}
	if l.total >= l.limit || l.reserved[c] >= most {
		return nil, false
	}
	l.total++
	l.reserved[c]++
	return func() { l.release(c) }, true
}

func (l *Members) release(c class) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.reserved[c]--; l.reserved[c] == 0 {
		delete(l.reserved, c)
	}
}

// Reserved returns how many connections of a kind a member has.
func (l *Members) Reserved(member uint64, kind wire.Kind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reserved[class{member, kind}]
}
