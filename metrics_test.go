package conclave

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestResultOf(t *testing.T) {
	for want, errs := range map[CallResult][]error{
		ResultOK:          {nil},
		ResultUnknown:     {ErrUnknown, fmt.Errorf("%w: %w", ErrUnknown, context.Canceled)},
		ResultUnavailable: {fmt.Errorf("%w: %w", ErrUnavailable, context.DeadlineExceeded)},
		ResultBusy:        {ErrBusy},
		ResultClosed:      {fmt.Errorf("%w: %w", ErrClosed, ErrCorrupt)},
		ResultLost:        {ErrLockOwnershipLost, ErrSessionExpired},
		ResultInvalid:     {ErrInvalid, ErrTooLarge},
		ResultCanceled:    {context.Canceled, context.DeadlineExceeded},
		ResultRefused:     {ErrLocked, ErrLockDelay, ErrNotHeld, ErrCompareFailed, ErrAcquireLimitReached, ErrDeadlock, errors.New("any other")},
	} {
		for _, err := range errs {
			if got := resultOf(fault("lock", "x", err)); got != want {
				t.Errorf("%v: %v, want %v", err, got, want)
			}
		}
	}
}

func TestCalls(t *testing.T) {
	c := newCalls()
	for kind := CallLock; kind <= lastCall; kind++ {
		for result := ResultOK; result <= ResultRefused; result++ {
			c.kinds[kind-1].results[result-1].Add(uint64(result))
		}
	}
	for i, m := range c.metrics(true) {
		if m.Kind != CallKind(i+1) || len(m.Results) != int(ResultRefused) || m.Results[ResultBusy] != uint64(ResultBusy) {
			t.Errorf("%v: %v", m.Kind, m.Results)
		}
	}
	if CallKind(0).String() != "CallKind(0)" || CallWrite.String() != "write" || lastCall.String() != "release_shards" || ResultRefused.String() != "refused" || CallResult(99).String() != "CallResult(99)" {
		t.Error("names of kinds and results")
	}
}
