package conclave_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// acquire is a method of a handle.
type acquire func(context.Context) (conclave.Fence, error)

type acquired struct {
	fence conclave.Fence
	err   error
}

func (a acquire) start(ctx context.Context) <-chan acquired {
	got := make(chan acquired, 1)
	go func() {
		f, err := a(ctx)
		got <- acquired{f, err}
	}()
	return got
}

// Goroutines that act as one call a re-entrant handle while another owner has the lock. Once the call of one of them is granted, that
// of the other one is a re-entry, also if it was queued before.
func TestLock_ReentrantCallsThatWaitTogether(t *testing.T) {
	n := grouptest.Alone(t)
	for _, test := range []struct {
		name          string
		first, second func(*conclave.FencedLock, *conclave.RWLock) acquire
		shared        bool // the owner before has the lock shared, and another one waits for it between the two
		want          error
	}{
		{name: "Lock and Lock", first: lockOf, second: lockOf},
		{name: "Lock and Lock of an RWLock", first: exclusiveOf, second: exclusiveOf},
		{name: "RLock and RLock behind a writer", first: sharedOf, second: sharedOf, shared: true},
		{name: "Lock and RLock", first: exclusiveOf, second: sharedOf, want: conclave.ErrInvalid},
		{name: "RLock and Lock", first: sharedOf, second: exclusiveOf, want: conclave.ErrInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := test.name
			other, writer := n.FencedLock(name), n.FencedLock(name)
			l, rw := n.FencedLock(name, conclave.Reentrant(0)), n.RWLock(name, conclave.Reentrant(0))
			grouptest.MustLock(t, other)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			start := func(c acquire) <-chan acquired { return c.start(ctx) }
			first, waiting := start(test.first(l, rw)), 1
			grouptest.AwaitWaiters(t, other, waiting)
			var writes <-chan acquired
			if test.shared {
				writes = start(writer.Lock)
				waiting++
				grouptest.AwaitWaiters(t, other, waiting)
			}
			second := start(test.second(l, rw))
			grouptest.AwaitWaiters(t, other, waiting+1)
			grouptest.MustUnlock(t, other)
			a, b := <-first, <-second
			switch {
			case a.err != nil || !errors.Is(b.err, test.want) || test.want == nil && b.err != nil:
				t.Fatalf("got %v and %v, want none and %v", a.err, b.err, test.want)
			case test.want == nil && a.fence != b.fence:
				t.Fatalf("the fences are %d and %d, want the same one", a.fence, b.fence)
			}
			for range map[bool]int{true: 1, false: 2}[test.want != nil] {
				release(t, l, rw)
			}
			if writes != nil {
				if w := <-writes; w.err != nil {
					t.Fatal(w.err)
				}
				grouptest.MustUnlock(t, writer)
			}
			grouptest.MustLock(t, other) // nothing is left
		})
	}
}

func lockOf(l *conclave.FencedLock, _ *conclave.RWLock) acquire { return l.Lock }

func exclusiveOf(_ *conclave.FencedLock, l *conclave.RWLock) acquire { return l.Lock }

func sharedOf(_ *conclave.FencedLock, l *conclave.RWLock) acquire { return l.RLock }

// release releases one hold of the handle that has it.
func release(t *testing.T, l *conclave.FencedLock, rw *conclave.RWLock) {
	t.Helper()
	err := rw.RUnlock(t.Context())
	if errors.Is(err, conclave.ErrNotHeld) {
		err = rw.Unlock(t.Context())
	}
	if errors.Is(err, conclave.ErrNotHeld) {
		err = l.Unlock(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}
