//go:build !linux

package leaseclock

import "time"

// system reads Go's monotonic clock only.
type system struct{ began time.Time }

// System returns the clocks of this machine.
func System() Source { return system{began: time.Now()} }

func (s system) Running() time.Duration { return time.Since(s.began) }

// Suspended is unknown here: on some systems Go's monotonic clock counts suspended
// time, and on others this is a gap.
func (system) Suspended(_, _ time.Duration) time.Duration { return 0 }
