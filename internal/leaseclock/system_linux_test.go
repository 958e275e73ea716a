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

// Suspended time counts, whatever was known of it before.
func TestClock_Suspended(t *testing.T) {
	c := newClock()
	before := c.now()
	c.known.Store(int64(suspended() - time.Hour)) // suspended for an hour since
	if passed := c.now() - before; passed < 0 || passed > instant(time.Minute) {
		t.Errorf("%v passed by a look that follows an older one", time.Duration(passed))
	}
	c.suspended -= time.Hour // the clock began an hour of suspension earlier
	if passed := c.now() - before; passed < instant(time.Hour) {
		t.Errorf("%v passed with an hour of suspension", time.Duration(passed))
	}
}

func TestIsStillSuspendedFor(t *testing.T) {
	for range 1000 {
		began, monotonic := now()
		d := suspended()
		if isStillSuspendedFor(d+time.Second, monotonic+time.Since(began)) || isStillSuspendedFor(d-time.Second, monotonic+time.Since(began)) {
			t.Fatalf("suspended for %v, and a second longer or shorter", d)
		}
		if isStillSuspendedFor(d, monotonic+time.Since(began)) {
			return
		}
	}
	t.Error("no look without a stop")
}
