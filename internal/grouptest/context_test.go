package grouptest

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// ownContext is a context of the application: it notes on which goroutines it is asked whether it
// has ended, and blocks there from Block on.
type ownContext struct {
	context.Context
	caller []byte // the goroutine that makes the call

	mu        sync.Mutex
	blocks    chan struct{} // guarded by mu; nil: it does not block
	elsewhere []string      // guarded by mu; stacks
}

func newOwnContext(ctx context.Context) *ownContext {
	return &ownContext{Context: ctx, caller: goroutine(stack())}
}

func stack() []byte {
	buf := make([]byte, 16<<10)
	return buf[:runtime.Stack(buf, false)]
}

// goroutine returns the number of the goroutine of a stack.
func goroutine(stack []byte) []byte { return bytes.Clone(bytes.Fields(stack)[1]) }

func (c *ownContext) Err() error {
	c.mu.Lock()
	at, blocks := stack(), c.blocks
	// A goroutine of package context waits for nothing but the context.
	if !bytes.Equal(goroutine(at), c.caller) && !bytes.Contains(at, []byte("created by context.")) {
		c.elsewhere = append(c.elsewhere, string(at))
	}
	c.mu.Unlock()
	if blocks != nil {
		<-blocks
	}
	return c.Context.Err()
}

// The methods of a context, which may be the application's and block, are called on the goroutine
// of the call only.
func TestContext_AskedByTheCallerOnly(t *testing.T) {
	t.Parallel()
	BothWays(t, func(t *testing.T, a Access) {
		ctx := newOwnContext(Bounded(t))
		l, k := a.FencedLock("l"), a.KV()
		for range 2 {
			_, err := l.Lock(ctx)
			Must(t, err)
			_, err = l.Info(ctx)
			Must(t, err)
			Must(t, l.Unlock(ctx))
			_, err = k.Put(ctx, "k", nil)
			Must(t, err)
			_, err = k.Get(ctx, "k")
			Must(t, err)
			_, err = k.Get(ctx, "k", conclave.Stale())
			Must(t, err)
			_, err = Collect(a.Locks(ctx, ""))
			Must(t, err)
			for _, err = range k.Watch(ctx, "", 0) {
				break
			}
			Must(t, err)
			p, err := a.Semaphore("s", 2).Acquire(ctx, 1)
			Must(t, err)
			Must(t, p.Release(ctx))
		}
		for _, at := range ctx.elsewhere {
			t.Errorf("the context is asked on another goroutine:\n%s", at)
		}
	})
}

// A context that blocks when it is asked holds up the call that was made with it, and no call for the
// same lock that need not wait for that one.
func TestContext_BlocksItsCallOnly(t *testing.T) { // not parallel: it looks at all goroutines
	BothWays(t, func(t *testing.T, a Access) {
		name := "l"
		held := a.FencedLock(name, conclave.Linger(time.Minute))
		MustLock(t, held)
		bounded, cancel := context.WithCancel(t.Context())
		ready, ended := make(chan *ownContext), make(chan error)
		go func() {
			ctx := newOwnContext(bounded)
			ready <- ctx
			_, err := a.FencedLock(name, conclave.Linger(time.Minute)).Lock(ctx)
			ended <- err
		}()
		ctx := <-ready
		released := make(chan struct{})
		awaitBlocked(t, "tenure).await")
		ctx.mu.Lock()
		ctx.blocks = released
		ctx.mu.Unlock()
		cancel()
		awaitBlocked(t, "ownContext).Err")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := a.FencedLock(name, conclave.Linger(time.Minute)).TryLock(Bounded(t))
			if !errors.Is(err, conclave.ErrLocked) {
				t.Errorf("TryLock: %v", err)
			}
			if err := held.Unlock(Bounded(t)); err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("the others wait for a context that is not theirs")
		}
		close(released)
		<-ended
		<-done
	})
}

// awaitBlocked waits until a goroutine is in a function.
func awaitBlocked(t *testing.T, function string) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for deadline := time.Now().Add(patience); !bytes.Contains(buf[:runtime.Stack(buf, true)], []byte(function)); Pass(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no goroutine is in %s", function)
		}
	}
}
