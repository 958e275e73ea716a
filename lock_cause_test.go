package conclave_test

import (
	"context"
	"errors"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A call that waits for its own handle reports its context's end, and not the error of another call that has ended the context:
// an ErrUnavailable would say that no quorum was reached.
func TestLock_OwnHandleAndForeignCause(t *testing.T) {
	n := grouptest.Alone(t)
	plain, rw, reader := n.FencedLock("plain"), n.RWLock("rw"), n.RWLock("reader")
	for name, lock := range map[string]struct {
		first, again func(context.Context) (conclave.Fence, error)
	}{
		"plain": {plain.Lock, plain.Lock}, "rw": {rw.Lock, rw.Lock}, "reader": {reader.RLock, reader.Lock},
	} {
		_, err := lock.first(t.Context())
		grouptest.Must(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := lock.again(ctx)
			failed <- err
		}()
		grouptest.AwaitWaiters(t, n.FencedLock(name), 1)
		cancel(&conclave.Error{Op: "get", Name: "k", Err: conclave.ErrUnavailable})
		err = <-failed
		var e *conclave.Error
		if !errors.Is(err, context.Canceled) || errors.Is(err, conclave.ErrUnavailable) || !errors.As(err, &e) || e.Op != "lock" {
			t.Errorf("%s: %v, want an error of lock that wraps %q alone", name, err, context.Canceled)
		}
	}
}
