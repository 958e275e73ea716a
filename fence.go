package conclave

import (
	"fmt"
	"sync"
)

// Fence is a fencing token: each time a lock goes from free to held, its holder
// gets a larger one than anybody before, for any lock of the group. It is never
// 0. Hand it to the resource with each request; see [Guard].
//
// The high 16 bits are an epoch that disaster recovery raises, the low 48 count
// grants.
type Fence uint64

// String prints the count, led by the epoch and a colon unless it is 0.
func (f Fence) String() string {
	epoch, count := uint64(f)>>48, uint64(f)&(1<<48-1)
	if epoch == 0 {
		return fmt.Sprint(count)
	}
	return fmt.Sprintf("%d:%d", epoch, count)
}

// Guard is what a resource that is protected by locks embeds. It remembers the
// largest fence that it has seen for each name and refuses smaller ones, so that
// a holder that lost its lock without noticing can do no harm. The zero Guard is
// ready, and safe for concurrent use.
//
// A Guard remembers in memory. A resource that outlives its process has to keep
// the fence with its data and compare there.
type Guard struct {
	mu      sync.Mutex
	largest map[string]Fence // guarded by mu
}

// Check accepts a fence if none larger was accepted for the name before, and
// returns an error that wraps ErrStaleFence otherwise. Fence 0 is refused with
// ErrInvalid. It does not block.
//
// Between Check and the write that it is for, a newer holder may come in. Do
// both under one lock of the resource's own.
func (g *Guard) Check(name string, f Fence) error {
	if f == 0 {
		return fault("check", name, fmt.Errorf("%w: 0 is no fence", ErrInvalid))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if largest := g.largest[name]; f < largest {
		return fault("check", name, fmt.Errorf("%w: %v came after %v", ErrStaleFence, f, largest))
	}
	if g.largest == nil {
		g.largest = make(map[string]Fence)
	}
	g.largest[name] = f
	return nil
}
