package conclaveotel

import (
	"context"
	"errors"

	"github.com/conclave-go/conclave"
)

// classify returns the name of the first error below that err wraps, and whether it is an
// answer for which the call asked.
func classify(err error) (class string, refused bool) {
	for _, c := range []struct {
		of      error
		class   string
		refused bool
	}{
		{conclave.ErrUnknown, "unknown", false},
		{conclave.ErrUnavailable, "unavailable", false},
		{conclave.ErrBusy, "busy", false},
		{conclave.ErrClosed, "closed", false},
		{conclave.ErrLockOwnershipLost, "lock_ownership_lost", false},
		{conclave.ErrSessionExpired, "session_expired", false},
		{conclave.ErrLocked, "locked", true},
		{conclave.ErrLockDelay, "lock_delay", true},
		{conclave.ErrJobDone, "job_done", true},
		{conclave.ErrCompareFailed, "compare_failed", true},
		{conclave.ErrNotHeld, "not_held", false},
		{conclave.ErrSessionNotFound, "session_not_found", false},
		{conclave.ErrGroupNotFound, "group_not_found", false},
		{conclave.ErrUpgradeRequired, "upgrade_required", false},
		{conclave.ErrAcquireLimitReached, "acquire_limit_reached", false},
		{conclave.ErrDeadlock, "deadlock", false},
		{conclave.ErrLimitMismatch, "limit_mismatch", false},
		{conclave.ErrNoLimit, "no_limit", false},
		{conclave.ErrStaleFence, "stale_fence", false},
		{conclave.ErrStaleSequencer, "stale_sequencer", false},
		{conclave.ErrTooLarge, "too_large", false},
		{conclave.ErrInvalid, "invalid", false},
		{context.DeadlineExceeded, "deadline_exceeded", false},
		{context.Canceled, "canceled", false},
	} {
		if errors.Is(err, c.of) {
			return c.class, c.refused
		}
	}
	return "_OTHER", false // as the semantic conventions call it
}
