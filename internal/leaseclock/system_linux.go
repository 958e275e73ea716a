package leaseclock

import (
	"time"

	"golang.org/x/sys/unix"
)

// system reads the clocks of this machine.
type system struct {
	began     time.Time
	monotonic time.Duration // the system's monotonic clock then
}

// System returns the clocks of this machine.
func System() Source {
	s := new(system)
	s.began, s.monotonic = now()
	return s
}

func (s *system) Running() time.Duration { return time.Since(s.began) }

// Suspended is the lead of the clock that counts suspended time over the one that does
// not.
func (s *system) Suspended(known, running time.Duration) time.Duration {
	if isStillSuspendedFor(known, s.monotonic+running) {
		return known
	}
	return suspended()
}

// suspended is how long the machine has been suspended since it booted.
func suspended() time.Duration {
	return ahead(
		func() time.Duration { return clockTime(unix.CLOCK_BOOTTIME) },
		func() time.Duration { return clockTime(unix.CLOCK_MONOTONIC) },
	)
}

// isStillSuspendedFor reports whether the machine has been suspended for as long as d.
// monotonic is the system's monotonic clock, read a moment before by way of Go's, which
// needs no system call: this is several times as fast as suspended. A process that was
// stopped between the two looks seems to have been suspended for longer.
func isStillSuspendedFor(d, monotonic time.Duration) bool {
	lead := clockTime(unix.CLOCK_BOOTTIME) - monotonic
	return lead > d-noise && lead < d+2*noise
}

// now returns Go's monotonic clock and the system's at the same moment. Where a process is
// stopped at each attempt, isStillSuspendedFor is of no use, and does no harm.
func now() (goes time.Time, monotonic time.Duration) {
	for range 100 {
		monotonic, goes = clockTime(unix.CLOCK_MONOTONIC), time.Now()
		if clockTime(unix.CLOCK_MONOTONIC)-monotonic < noise/10 {
			break
		}
	}
	return goes, monotonic
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
