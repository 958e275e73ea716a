//go:build !linux

package client

import "time"

// suspended is unknown here: on some systems Go's monotonic clock counts suspended
// time, and on others this is a gap.
func suspended() time.Duration { return 0 }

func isStillSuspendedFor(_, _ time.Duration) bool { return true }

func now() (goes time.Time, monotonic time.Duration) { return time.Now(), 0 }
