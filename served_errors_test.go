package conclave

import (
	"errors"
	"fmt"
	"testing"

	"github.com/conclave-go/conclave/internal/remote"
)

// What a member is asked for by a client fails with the error that it has there, or with one that the
// client has for it. The others are of calls that the client makes by itself.
func TestServed_ErrorsSurviveTheWay(t *testing.T) {
	for _, sentinel := range []error{ErrUnknown, ErrLastVoter, ErrCompacted, ErrBusy, ErrUnavailable, ErrTooLarge, ErrInvalid} {
		code, text := failureOf(&Error{Op: "x", Err: fmt.Errorf("%w: because", sentinel)})
		got := convert(&remote.RequestError{Failure: code, Text: text})
		for _, other := range []error{ErrUnknown, ErrLastVoter, ErrCompacted, ErrBusy, ErrUnavailable, ErrTooLarge, ErrInvalid, ErrClosed, ErrIncomplete} {
			if errors.Is(got, other) != (other == sentinel) {
				t.Errorf("%v arrives as %v, which is %v", sentinel, got, other)
			}
		}
	}
	// The member is closed, and not the client.
	for _, closed := range []error{ErrClosed, fmt.Errorf("%w (%w)", ErrClosed, ErrRemoved)} {
		code, text := failureOf(closed)
		if got := convert(&remote.RequestError{Failure: code, Text: text}); !errors.Is(got, ErrUnavailable) || errors.Is(got, ErrClosed) {
			t.Errorf("%v arrives as %v", closed, got)
		}
	}
	// The member was closed while it did what it was asked for.
	code, text := failureOf(fmt.Errorf("%w: %w", ErrUnknown, ErrClosed))
	if got := convert(&remote.RequestError{Failure: code, Text: text}); !errors.Is(got, ErrUnknown) || errors.Is(got, ErrUnavailable) {
		t.Errorf("it arrives as %v", got)
	}
}
