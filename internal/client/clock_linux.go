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

// ahead is the lead of one clock over another, less noise, as they can only be read
// one after the other. A process that was stopped in between reads again: otherwise
// that time would count as suspended too, a renewal would count as sent later than
// it was, and a holder would trust its lock for too long.
func ahead(clock, of func() time.Duration) time.Duration {
	const noise = time.Millisecond
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
