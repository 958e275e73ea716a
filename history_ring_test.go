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
		h := newHistory()
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
	h := newHistory()
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

// Events of further groups evict none of the default group, and none of one group counts one of another.
func TestHistory_FurtherGroupsEvictNone(t *testing.T) {
	h := newHistory()
	a, b := h.of("a"), h.of("b")
	a.leaderChanged(5, 5) // before its history begins
	for _, of := range []*history{h, a, b} {
		of.begin(1, 1)
		of.sessionEnded(fact.Ended{Cause: fact.Forced, Member: 7})
	}
	for term := range uint64(2 * maxHistory) {
		a.leaderChanged(1, term)
	}
	var leaders, ends []string
	for _, e := range h.events() {
		switch {
		case e.Kind == HistorySessionForced && e.Count == 1:
			ends = append(ends, e.Group)
		case e.Group != "a":
			leaders = append(leaders, e.Group)
		}
	}
	if !slices.Equal(ends, []string{"", "a", "b"}) || !slices.Equal(leaders, []string{""}) {
		t.Errorf("ends %q, leaders %q", ends, leaders)
	}
}
