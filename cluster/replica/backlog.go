package replica

import (
	"sync"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/budget"
)

// backlog lets Submit refuse a call before its command is encoded: under overload most
// calls are refused, and a refusal must not cost the memory and time of what it refuses.
// The core has the same limits; here the calls that are on their way to it count as well.
type backlog struct {
	maxCalls, maxBytes int
	budget             *budget.Budget // of several groups; nil: it shares none

	mu      sync.Mutex
	core    core.Backlog // guarded by mu; as the loop reported it last
	posted  core.Backlog // guarded by mu; not in core yet
	counted int          // guarded by mu; bytes in the budget
	closed  bool         // guarded by mu
}

// reserve counts a call of that size, unless it exceeds the limits.
func (b *backlog) reserve(size int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.all()
	maxBytes := b.maxBytes
	if maxBytes > 0 {
		maxBytes = b.budget.Allowed(maxBytes)
	}
	if !all.Admits(size, b.maxCalls, maxBytes) {
		return false
	}
	b.posted = b.posted.With(size)
	b.count()
	return true
}

func (b *backlog) all() core.Backlog {
	return core.Backlog{Calls: b.core.Calls + b.posted.Calls, Bytes: b.core.Bytes + b.posted.Bytes}
}

// count counts the bytes in the budget. It is called with mu held.
func (b *backlog) count() {
	if bytes := b.all().Bytes; !b.closed {
		b.budget.Take(bytes - b.counted)
		b.counted = bytes
	}
}

// close leaves the budget to other groups: the calls that are left fail.
func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.budget.Take(-b.counted)
	b.counted, b.closed = 0, true
}

// sum returns the calls that count.
func (b *backlog) sum() (calls, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.all()
	return all.Calls, all.Bytes
}

// submitted reports that the core got a call that was reserved, and the core's backlog
// with it.
func (b *backlog) submitted(size int, now core.Backlog) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.posted, b.core = b.posted.Without(size), now
	b.count()
}

// update reports the core's backlog.
func (b *backlog) update(now core.Backlog) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.core = now
	b.count()
}
