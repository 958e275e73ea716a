package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended is how long the machine has been suspended since it booted: the lead of
// the clock that counts suspended time over the one that does not.
func suspended() time.Duration {
	return ahead(
		func() time.Duration { return clockTime(unix.CLOCK_BOOTTIME) },
		func() time.Duration { return clockTime(unix.CLOCK_MONOTONIC) },
	)
}

// isStillSuspendedFor reports whether the machine has been suspended for as long as d, and
// is faster than suspended. A process that was stopped between the two looks seems to have been
// suspended for longer.
func isStillSuspendedFor(d time.Duration) bool {
	of := clockTime(unix.CLOCK_MONOTONIC)
	return max(clockTime(unix.CLOCK_BOOTTIME)-of, 0).Truncate(noise) == d
}

const noise = time.Millisecond

// ahead is the lead of one clock over another, less noise, as they can only be read
// one after the other. A process that was stopped in between reads again: otherwise
// that time would count as suspended too, a renewal would count as sent later than
// it was, and a holder would trust its lock for too long.
func ahead(clock, of func() time.Duration) time.Duration {
	for {
		before := of()
		at := clock()
		if of()-before < noise {
			return max(at-before, 0).Truncate(noise)
		}
	}
}

// clockTime is 0 for a clock that this kernel lacks.
func clockTime(clock int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(clock, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
