package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wait"
)

// Where a yield is slow, since the host keeps all processors busy, the loop stops yielding
// for a while, longer each time, and begins again when it is fast.
func TestYielding_PausesWhereItIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y yielding
		slow := func(pause time.Duration) {
			t.Helper()
			y.note(time.Now(), 10*slowYield)
			time.Sleep(10*slowYield + pause - time.Millisecond)
			if y.yield() {
				t.Errorf("yields within the pause of %v", pause)
			}
			time.Sleep(2 * time.Millisecond)
		}
		if !y.yield() {
			t.Error("does not yield at first")
		}
		slow(firstYieldGap)
		slow(2 * firstYieldGap)
		for range 10 {
			y.note(time.Now(), 10*slowYield)
		}
		slow(maxYieldGap)
		if !y.yield() {
			t.Error("does not yield after the pause")
		}
		slow(firstYieldGap)
	})
}

// What is queued is fetched, also where fewer callers than were woken call again, and by a
// loop that does not yield.
func TestYielding_Fetch(t *testing.T) {
	for name, y := range map[string]*yielding{
		"none woken":     {},
		"many woken":     {callers: 1000, callersAt: time.Now().Add(time.Hour)}, // for the largest number of yields
		"does not yield": {callers: 1000, callersAt: time.Now().Add(time.Hour), resume: time.Now().Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			mailbox := wait.NewMailbox[event]()
			mailbox.Post(event{})
			mailbox.Post(event{})
			if got := y.fetch(mailbox); len(got) != 2 {
				t.Errorf("fetches %d events, want 2", len(got))
			}
			if y.callers != 0 {
				t.Errorf("expects %d callers the next time", y.callers)
			}
		})
	}
}
