package spread

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// What is due is transferred when it has been due for long enough, in the first group in which the voter is up to date, and again after
// that time, or after a failure much later; and not any more once ctx is done.
func TestRun(t *testing.T) {
	const election = time.Second
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		outcomes := []Outcome{Refused, Moved, Refused, Failed, Refused, Refused, Refused, Moved}
		var term uint64
		reports := 0
		var calls []string
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Run(ctx, Config{
				Self: 1, Election: election,
				View: func() View {
					v := view(1, 2, 1, 1)
					v.Leaders[1].Term += term
					return v
				},
				Report: func(View) { reports++ },
				Transfer: func(_ context.Context, group uint32, to uint64, _ bool) (o Outcome) {
					calls = append(calls, fmt.Sprintf("%v: %d to %d", time.Since(began), group, to))
					if o, outcomes = outcomes[0], outcomes[1:]; o == Moved {
						term++
					}
					if len(outcomes) == 0 {
						cancel()
					}
					return o
				},
			})
		}()
		<-ended
		look := period(election)
		want := []string{
			fmt.Sprintf("%v: 2 to 3", 6*look), fmt.Sprintf("%v: 3 to 3", 6*look), // refused, moved
			fmt.Sprintf("%v: 2 to 3", 12*look), fmt.Sprintf("%v: 3 to 3", 12*look), // refused, failed
			fmt.Sprintf("%v: 2 to 3", 72*look), fmt.Sprintf("%v: 3 to 3", 72*look), // both refused: again at the next look
			fmt.Sprintf("%v: 2 to 3", 73*look), fmt.Sprintf("%v: 3 to 3", 73*look),
		}
		if !slices.Equal(calls, want) {
			t.Errorf("transfers %q, want %q", calls, want)
		}
		if reports != 73 {
			t.Errorf("%d reports", reports)
		}
	})
}

// The end of the context ends a look between two groups.
func TestRun_ContextDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	first(ctx, Config{Transfer: func(context.Context, uint32, uint64, bool) Outcome {
		calls++
		cancel()
		return Refused
	}}, Move{Groups: []uint32{1, 2}, To: []uint64{3}})
	if calls != 1 {
		t.Errorf("%d transfers begin, want 1", calls)
	}
}
