package leaseclock

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

// The source is right about the suspended time, whatever was known of it before.
func TestSystem_Suspended(t *testing.T) {
	s, want := System(), suspended()
	for _, known := range []time.Duration{0, want - time.Hour, want, want + time.Hour} {
		if got := s.Suspended(known, s.Running()); got < want-2*noise || got > want+2*noise {
			t.Errorf("suspended for %v after %v was known, want %v", got, known, want)
		}
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
