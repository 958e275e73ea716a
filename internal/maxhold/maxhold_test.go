package maxhold

import (
	"testing"
	"time"
)

const second = instant(time.Second)

func wantEnd(t *testing.T, e *End, want instant) {
	t.Helper()
	if got := e.At(); got != want {
		t.Errorf("the hold ends at %v, want %v", time.Duration(got), time.Duration(want))
	}
}

// A grant counts from its request, or from a later renewal, whichever leaves more.
func TestGranted(t *testing.T) {
	granted := Outcome{Sent: 10 * second, Allowed: 110 * time.Second, Now: int64(500 * time.Second), Index: 3} // it waited for 100 s
	e := Granted(granted, Reference{})
	wantEnd(t, &e, 10*second+instant(108900*time.Millisecond))
	e = Granted(granted, Reference{Sent: 105 * second, Now: int64(595 * time.Second)})
	wantEnd(t, &e, 105*second+instant(14850*time.Millisecond))
	e = Granted(granted, Reference{Sent: 200 * second, Now: int64(690 * time.Second)}) // the outcome came after the end
	wantEnd(t, &e, 10*second+instant(108900*time.Millisecond))
	e = Granted(granted, Reference{Sent: 5 * second, Now: int64(495 * time.Second)})
	wantEnd(t, &e, 10*second+instant(108900*time.Millisecond))
}

func TestReference_Note(t *testing.T) {
	var r Reference
	for _, row := range []struct {
		sent instant
		now  int64
		want Reference
	}{
		{second, 7, Reference{second, 7}},
		{3 * second, 9, Reference{3 * second, 9}},
		{2 * second, 8, Reference{3 * second, 9}}, // its answer was late
		{4 * second, 0, Reference{3 * second, 9}}, // by a member that states none
	} {
		if r.Note(row.sent, row.now); r != row.want {
			t.Errorf("after a renewal at %v with %d: %+v, want %+v", time.Duration(row.sent), row.now, r, row.want)
		}
	}
}

// While an Extend is under way the earlier end counts; of several, the last entry decides.
func TestEnd_Extend(t *testing.T) {
	e := Granted(Outcome{Allowed: 10 * time.Second, Index: 1}, Reference{})
	longer, shorter := e.Extend(second, 100*time.Second), e.Extend(2*second, time.Second)
	wantEnd(t, &e, 2*second+instant(990*time.Millisecond))
	e.Extended(longer, 100*time.Second, 3)
	wantEnd(t, &e, 2*second+instant(990*time.Millisecond))
	e.Extended(shorter, time.Second, 2)
	wantEnd(t, &e, second+99*second)
	e.Settle(e.Extend(3*second, time.Second))
	wantEnd(t, &e, second+99*second)
}
