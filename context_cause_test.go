package conclave

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/conclave-go/conclave/internal/client"
)

// A context may have ended because of an error of this package, as that of an errgroup does. What
// the call reports of itself does not depend on that, and the other call's error is not taken for its own.
func TestError_ContextEndedByAnotherCall(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(&Error{Op: "lock", Name: "x", Err: ErrLocked})
	cause := client.ContextError(ctx)
	for kind, want := range map[client.Kind]error{client.Unknown: ErrUnknown, client.Unavailable: ErrUnavailable, client.Interrupted: context.Canceled} {
		err := fault("put", "k", &client.Fault{Kind: kind, Cause: cause})
		var e *Error
		if !errors.Is(err, want) || !errors.Is(err, context.Canceled) || !errors.As(err, &e) || e.Op != "put" {
			t.Errorf("kind %v: %v, want an error of put that wraps %q", kind, err, want)
		}
		if errors.Is(err, ErrLocked) {
			t.Errorf("kind %v: %v wraps the error of the other call", kind, err)
		}
		if f := (*client.Fault)(nil); errors.As(err, &f) {
			t.Errorf("kind %v: %v is not converted", kind, err)
		}
	}
}

// So it is for calls that do not go through the log.
func TestError_ContextEndedByAnotherCallOfMember(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(&Error{Op: "get", Name: "x", Err: ErrUnavailable})
	err := fault("transfer leadership", "", fmt.Errorf("%w: %w", ErrUnknown, contextError(ctx)))
	if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
