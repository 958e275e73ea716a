package conclave

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
)

// Each ring drops its oldest events, and merges none that are a second apart.
func TestHistory_DropsOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		h.sessionEnded(fact.Ended{Cause: fact.Forced, Member: 7}) // before the history begins
		h.begin(1, 1)
		for i := range 2*maxHistory + 10 {
			for range 3 {
				h.sessionEnded(fact.Ended{Cause: fact.Forced, Member: 7, Held: 2})
				h.sessionEnded(fact.Ended{Cause: fact.Forced, Member: 8})
			}
			if i%50 == 0 {
				h.redundancyChanged(1)
			}
			time.Sleep(merging + 1)
		}
		h.sessionEnded(fact.Ended{Cause: fact.Closed})
		h.sessionEnded(fact.Ended{Cause: fact.Expired, Unbound: true})
		all := h.events()
		if want := 1 + 11 + maxHistory; len(all) != want || all[0].Kind != HistoryLeader {
			t.Fatalf("%d events, want %d; the first is %+v", len(all), want, all[0])
		}
		for i, e := range all {
			if i > 0 && e.Seq <= all[i-1].Seq {
				t.Errorf("%+v follows %+v", e, all[i-1])
			}
			if e.Member == 7 && (e.Count != 3 || e.Held != 6) || e.Member == 8 && (e.Count != 3 || e.Held != 0) {
				t.Errorf("%+v", e)
			}
		}
		if last := all[len(all)-1]; last.Seq != h.last {
			t.Errorf("the last event is %+v of %d", last, h.last)
		}
	})
}

// A member without a leader that campaigns in vain changes its Raft state again and again. That
// is no other leader, and must not evict what has happened before.
func TestHistory_SameLeader(t *testing.T) {
	var h history
	h.begin(1, 2)
	h.leaderChanged(1, 2) // while it began
	for range maxHistory + 1 {
		h.leaderChanged(0, 2)
	}
	h.leaderChanged(0, 3)
	h.leaderChanged(1, 3)
	var got []uint64
	for _, e := range h.events() {
		got = append(got, uint64(e.Member), e.Term)
	}
	if want := []uint64{1, 2, 0, 2, 0, 3, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got[:min(len(got), 20)], want)
	}
}
