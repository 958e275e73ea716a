package grouptest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
)

// Ledger is a resource behind locks, outside of the group. It shows violations of
// mutual exclusion: the fences of accepted writes never decrease, and no fence is
// acknowledged twice. The zero value is ready.
type Ledger struct {
	guard conclave.Guard

	mu      sync.Mutex
	seen    map[conclave.Fence]bool // guarded by mu; all that were acknowledged
	refused int                     // guarded by mu
}

// Acknowledged notes a fence that Lock returned.
func (b *Ledger) Acknowledged(t testing.TB, name string, f conclave.Fence) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = make(map[conclave.Fence]bool)
	}
	if b.seen[f] {
		t.Errorf("fence %v of %q was granted twice", f, name)
	}
	b.seen[f] = true
}

// Refused returns how many writes came after a later holder's.
func (b *Ledger) Refused() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// write is refused when a later holder has written, which is allowed only when the
// writer knows that it has lost the lock.
func (b *Ledger) write(t testing.TB, name string, l *conclave.FencedLock, f conclave.Fence) {
	if b.guard.Check(name, f) == nil {
		return
	}
	if _, err := l.Fence(); err == nil {
		t.Errorf("%q with fence %v: a later holder has written, and this holder does not know that it lost the lock", name, f)
	}
	b.mu.Lock()
	b.refused++
	b.mu.Unlock()
}

// Work locks, writes and unlocks until ctx ends or the node stops. It calls cycled after
// each cycle.
func (b *Ledger) Work(ctx context.Context, t testing.TB, n *conclave.Node, name string, cycled func(), opts ...conclave.LockOption) {
	l := n.FencedLock(name, opts...)
	for ctx.Err() == nil {
		f, err := l.Lock(ctx)
		if errors.Is(err, conclave.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		b.Acknowledged(t, name, f)
		b.write(t, name, l, f)
		b.write(t, name, l, f)
		_ = l.Unlock(ctx) // fails when the session was lost, as the callers intend
		cycled()
	}
}
