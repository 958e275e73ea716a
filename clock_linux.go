package conclave

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended is how long the machine has been suspended since it was started:
// what the clock that goes on in the meantime is ahead of the one that does not.
func suspended() time.Duration {
	var with, without unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &without) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &with) != nil {
		return 0
	}
	// The two are read one after the other; differences below that are noise.
	return time.Duration(with.Nano() - without.Nano()).Truncate(time.Millisecond)
}
