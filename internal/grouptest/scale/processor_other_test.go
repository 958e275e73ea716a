//go:build !unix

package scale

import "time"

// processorTime is not measured here.
func processorTime() time.Duration { return 0 }
