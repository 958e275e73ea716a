package conclave

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Fence is a fencing token. Each time a lock goes from free to held, its holder gets
// a fence that is larger than every fence that the group has granted before, for any lock. (A grant
// that a node makes by itself, see [Linger], has one that is larger than every fence of that lock.) It is
// never 0. Send it to the resource with each request; see [Guard].
//
// The high 16 bits are an epoch, which disaster recovery raises; the low 48 bits
// count grants.
type Fence uint64

// String prints the count, preceded by the epoch and a colon unless that is 0.
func (f Fence) String() string {
	epoch, count := uint64(f)>>48, uint64(f)&maxFenceCount
	if epoch == 0 {
		return strconv.FormatUint(count, 10)
	}
	return fmt.Sprintf("%d:%d", epoch, count)
}

const maxFenceCount = 1<<48 - 1

// ParseFence parses what [Fence.String] prints. It returns ErrInvalid for anything
// else, and for 0.
func ParseFence(s string) (Fence, error) {
	f, err := parseFence(s)
	if err == nil && f == 0 {
		err = fmt.Errorf("%w: want a fence, got 0", ErrInvalid)
	}
	if err != nil {
		return 0, fault("parse fence", s, err)
	}
	return f, nil
}

func parseFence(s string) (Fence, error) {
	epoch, count, found := strings.Cut(s, ":")
	if !found {
		epoch, count = "0", s
	}
	e, errEpoch := strconv.ParseUint(epoch, 10, 16)
	c, errCount := strconv.ParseUint(count, 10, 48)
	f := Fence(e<<48 | c)
	if errEpoch != nil || errCount != nil || f.String() != s {
		return 0, fmt.Errorf("%w: want count or epoch:count, got %q", ErrInvalid, s)
	}
	return f, nil
}

// MarshalText returns what String prints.
func (f Fence) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText parses what MarshalText returned, 0 included.
func (f *Fence) UnmarshalText(text []byte) error {
	parsed, err := parseFence(string(text))
	if err != nil {
		return fault("parse fence", string(text), err)
	}
	*f = parsed
	return nil
}

type fenceKey struct{}

// ContextWithFence returns a context that carries f. FencedLock.Do, Semaphore.Do and
// Election.Run put the fence of their hold into the context that they pass on.
func ContextWithFence(ctx context.Context, f Fence) context.Context {
	return context.WithValue(ctx, fenceKey{}, f)
}

// FenceFromContext returns the fence that ctx carries. It does not report whether
// what was acquired with that fence is still held.
func FenceFromContext(ctx context.Context) (f Fence, ok bool) {
	f, ok = ctx.Value(fenceKey{}).(Fence)
	return f, ok
}

// Guard checks fences for a resource that locks protect. It remembers the largest
// fence for each name and refuses smaller ones, so that a holder that has lost its
// lock without noticing can do no harm. The zero Guard is ready for use, and safe for
// concurrent use.
//
// A Guard remembers in memory, one fence for each name until Forget. A resource that
// outlives its process must store the fence with its data and compare there.
type Guard struct {
	mu      sync.Mutex
	largest map[string]Fence // guarded by mu
}

// Check accepts f if it has accepted no larger fence for the name, and returns an
// error that wraps a *StaleFenceError otherwise. It returns ErrInvalid for fence 0. It
// does not block.
//
// A newer holder may come between Check and the write that it is for. Do both under
// one lock of the resource.
func (g *Guard) Check(name string, f Fence) error {
	if f == 0 {
		return fault("check", name, errNoFence)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if largest := g.largest[name]; f < largest {
		return fault("check", name, &StaleFenceError{Presented: f, Largest: largest})
	}
	if g.largest == nil {
		g.largest = make(map[string]Fence)
	}
	g.largest[name] = f
	return nil
}

// Forget discards what the guard remembers of the name, so that names which are no longer
// in use cost nothing. A holder that has lost its lock without noticing is not refused
// afterwards, until a newer one comes: forget a name only with what it protects.
func (g *Guard) Forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.largest, name)
}

// StaleFenceError is the reason why a guard refuses a fence. It wraps ErrStaleFence.
type StaleFenceError struct {
	Presented Fence // what was refused
	Largest   Fence // what had been accepted before
}

// Error returns both fences.
func (e *StaleFenceError) Error() string {
	return fmt.Sprintf("%v: %v came after %v", ErrStaleFence, e.Presented, e.Largest)
}

// Unwrap returns ErrStaleFence.
func (e *StaleFenceError) Unwrap() error { return ErrStaleFence }

var errNoFence = fmt.Errorf("%w: 0 is not a fence", ErrInvalid)
