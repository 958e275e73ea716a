package client

import (
	"testing"
	"time"
)

// A process can be stopped between two readings of the clocks. The machine was not
// suspended then: both clocks ran on.
func TestAhead_StoppedBetweenReadings(t *testing.T) {
	const asleep = 5 * time.Second
	for stop := range 8 {
		var now time.Duration
		readings := 0
		read := func() time.Duration {
			if readings++; readings == stop {
				now += 10 * time.Second
			}
			now += 100 * time.Nanosecond
			return now
		}
		got := ahead(func() time.Duration { return asleep + read() }, read)
		if got != asleep {
			t.Errorf("stopped before reading %d: %v of %v", stop, got, asleep)
		}
	}
}
