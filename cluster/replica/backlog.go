package replica

import (
	"sync"

	"github.com/conclave-go/conclave/cluster/core"
)

// backlog lets Submit refuse a call before its command is encoded: under overload most
// calls are refused, and a refusal must not cost the memory and time of what it refuses.
// The core has the same limits; here the calls that are on their way to it count as well.
type backlog struct {
	maxCalls, maxBytes int

	mu     sync.Mutex
	core   core.Backlog // guarded by mu; as the loop reported it last
	posted core.Backlog // guarded by mu; not in core yet
}

// reserve counts a call of that size, unless it exceeds the limits.
func (b *backlog) reserve(size int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := core.Backlog{Calls: b.core.Calls + b.posted.Calls, Bytes: b.core.Bytes + b.posted.Bytes}
	if !all.Admits(size, b.maxCalls, b.maxBytes) {
		return false
	}
	b.posted = b.posted.With(size)
	return true
}

// sum returns the calls that count.
func (b *backlog) sum() (calls, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.Calls + b.posted.Calls, b.core.Bytes + b.posted.Bytes
}

// submitted reports that the core got a call that was reserved, and the core's backlog
// with it.
func (b *backlog) submitted(size int, now core.Backlog) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.posted, b.core = b.posted.Without(size), now
}

// update reports the core's backlog.
func (b *backlog) update(now core.Backlog) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.core = now
}
