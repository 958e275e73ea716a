package conclave

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
)

// The first count of fences grows by 100,000 in a second. A clock from which no count
// follows is refused.
func TestRestore_ClockDecidesFirstFence(t *testing.T) {
	begin := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	for now, want := range map[time.Time]uint64{
		begin.Add(10 * time.Microsecond):                         1,
		begin.Add(time.Second):                                   100_000,
		time.Date(2114, time.January, 1, 0, 0, 0, 0, time.Local): 1,
	} {
		if got, err := firstCount(now); err != nil || got < want || got >= maxFenceCount {
			t.Errorf("at %v: %d, %v; want %d", now, got, err, want)
		}
	}
	for _, now := range []time.Time{{}, time.Unix(0, 0), begin, time.Date(2116, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<40, 0)} {
		if got, err := firstCount(now); !errors.Is(err, ErrInvalid) || !errors.Is(err, errClock) {
			t.Errorf("at %v: %d, %v", now, got, err)
		}
	}
	if err := convert(fmt.Errorf("seed: %w", machine.ErrLastEpoch)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("the last epoch is %v", err)
	}
}
