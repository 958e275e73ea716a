package core

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Group time follows the leader's clock, never back, and never by more than the cap.
func TestGroupClock(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		readings []time.Duration
		want     time.Duration // since the term began at reading 100 ms
	}{
		"runs along":                {[]time.Duration{150 * ms, 200 * ms, 350 * ms}, 250 * ms},
		"a step may be as the cap":  {[]time.Duration{300 * ms}, 200 * ms},
		"a pause counts as the cap": {[]time.Duration{time.Hour}, 200 * ms},
		"and time goes on after it": {[]time.Duration{time.Hour, time.Hour + 50*ms}, 250 * ms},
		"many pauses, each capped":  {[]time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour}, 600 * ms},
		"an unchanged reading":      {[]time.Duration{150 * ms, 150 * ms}, 50 * ms},
		"a reading that goes back":  {[]time.Duration{150 * ms, 120 * ms, 130 * ms}, 60 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			c := groupClock{cap: 200 * ms}
			c.start(1000, 100*ms)
			last := c.time
			for _, now := range test.readings {
				if c.step(now) < last {
					t.Fatalf("went back from %d to %d", last, c.time)
				}
				last = c.time
			}
			if got := time.Duration(last - 1000); got != test.want {
				t.Errorf("%v have passed, want %v", got, test.want)
			}
		})
	}
}

// A new term begins at the machine's time, whatever this clock showed before.
func TestGroupClock_NewTerm(t *testing.T) {
	c := groupClock{cap: time.Second}
	c.start(5000, 0)
	c.step(time.Second)
	c.stop()
	c.start(7000, time.Hour)
	if got := c.step(time.Hour + 10); got != 7010 {
		t.Errorf("group time is %d, want 7010", got)
	}
}

// A batch carries a time from after its commands arrived. An earlier one would make a
// renewal count from before it was sent.
func TestPropose_StampedAfterCommands(t *testing.T) {
	r := newRig(t).follow().lead()
	if _, err := r.Take(10 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	r.mustSubmit(&wire.Submission{Incarnation: make([]byte, 16), Calls: []*wire.Call{{Seq: 1}}})
	out, err := r.Take(60 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	stamped := 0
	for _, m := range out.Messages {
		for _, e := range m.GetEntries() {
			parsed, err := parseEntry(e.GetData())
			if err != nil {
				t.Fatal(err)
			}
			var batch wire.Batch
			if err := proto.Unmarshal(parsed, &batch); err != nil {
				t.Fatal(err)
			}
			if got := time.Duration(batch.GetTime()); got != 60*time.Millisecond {
				t.Errorf("received within 60 ms of the term, stamped with %v", got)
			}
			stamped++
		}
	}
	if stamped == 0 {
		t.Error("nothing was proposed")
	}
}
