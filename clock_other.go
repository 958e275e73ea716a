//go:build !linux

package conclave

import "time"

// suspended is unknown here: Go's monotonic clock goes on while the machine is
// suspended on some systems, and on others this is a gap.
func suspended() time.Duration { return 0 }
