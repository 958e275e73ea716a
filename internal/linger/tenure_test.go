package linger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// steps does all steps up to the next event, and prints them.
func steps(t *Tenure[string]) string {
	var did []string
	for {
		switch s := t.Next(); s.Action {
		case Serve:
			did = append(did, fmt.Sprintf("%s %d", s.Owner, s.Fence))
		case Refuse:
			did = append(did, "refuse "+s.Owner)
		case Refill:
			did = append(did, fmt.Sprint("refill ", s.Fences))
		case Release:
			did = append(did, "release")
		case Wait:
			return strings.Join(did, ", ")
		}
	}
}

func join(t *Tenure[string], owner string) *Place[string] {
	p := &Place[string]{Owner: owner}
	t.Join(p)
	return p
}

// event is what happens to a tenure, and the steps that follow.
type event struct {
	do   func(*Tenure[string])
	want string
}

func owner(names string) func(*Tenure[string]) {
	return func(t *Tenure[string]) {
		for _, name := range strings.Fields(names) {
			join(t, name)
		}
	}
}

func begin(first uint64, n uint32) func(*Tenure[string]) {
	return func(t *Tenure[string]) { t.Begin(first, n) }
}

func refilled(first uint64, n uint32) func(*Tenure[string]) {
	return func(t *Tenure[string]) { t.Refilled(first, n) }
}

func TestTenure(t *testing.T) {
	freed, closed := (*Tenure[string]).Freed, (*Tenure[string]).Close
	for name, events := range map[string][]event{
		"owners are served in their order once the lock is granted": {
			{owner("a b"), ""}, {begin(10, 16), "a 10"}, {owner("c"), ""}, {freed, "b 11"}, {freed, "c 12"}, {freed, ""}, {owner("d"), "d 13"},
		},
		"an idle tenure is released when it is closed": {
			{owner("a"), ""}, {begin(10, 16), "a 10"}, {freed, ""}, {closed, "release"}, {closed, ""}, {freed, ""},
		},
		"those that came before the end are served": {
			{owner("a b c"), ""}, {begin(10, 16), "a 10"}, {closed, ""}, {freed, "b 11"}, {freed, "c 12"}, {freed, "release"},
		},
		"it may be closed before it begins": {
			{owner("a b"), ""}, {closed, ""}, {begin(10, 16), "a 10"}, {freed, "b 11"}, {freed, "release"},
		},
		"without an owner it is released at once": {
			{closed, ""}, {begin(10, 16), "release"},
		},
		"blocks are asked for in time, each twice as large": {
			{owner("a b c d e f g h"), ""}, {begin(10, 4), "a 10"}, {freed, "b 11, refill 8"}, {freed, "c 12"}, {refilled(50, 8), ""},
			{freed, "d 13"}, {freed, "e 50"}, {freed, "f 51"}, {freed, "g 52"}, {freed, "h 53, refill 16"},
		},
		"owners wait for a block": {
			{owner("a b c"), ""}, {begin(10, 1), "a 10, refill 2"}, {freed, ""}, {refilled(50, 2), "b 50, refill 4"}, {freed, "c 51"},
			{closed, ""}, {freed, "release"}, {refilled(90, 4), ""},
		},
		"closed, it asks for no more than it needs": {
			{owner("a b c"), ""}, {begin(10, 3), "a 10"}, {closed, ""}, {freed, "b 11"}, {freed, "c 12"}, {freed, "release"},
		},
		"closed, it asks for what it needs": {
			{owner("a b c"), ""}, {closed, ""}, {begin(10, 1), "a 10, refill 2"}, {refilled(50, 2), ""}, {freed, "b 50"}, {freed, "c 51"}, {freed, "release"},
		},
		"without fences owners are sent away": {
			{owner("a b c"), ""}, {begin(10, 1), "a 10, refill 2"}, {refilled(0, 0), "refuse b, refuse c"}, {freed, "release"},
		},
		"the next block follows from what the group gave": {
			{begin(10, 2), ""}, {owner("a"), "a 10, refill 4"}, {refilled(50, 3), ""}, {freed, ""}, {owner("b c"), "b 11"}, {freed, "c 50"},
			{freed, ""}, {owner("d"), "d 51, refill 6"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var tenure Tenure[string]
			for i, e := range events {
				e.do(&tenure)
				if got := steps(&tenure); got != e.want {
					t.Fatalf("event %d: %q, want %q", i, got, e.want)
				}
			}
		})
	}
}

func TestTenure_Leave(t *testing.T) {
	var tenure Tenure[string]
	a, b, c, d := join(&tenure, "a"), join(&tenure, "b"), join(&tenure, "c"), join(&tenure, "d")
	if !tenure.Leave(b) || tenure.Leave(b) || !tenure.Leave(d) || tenure.Waiting() != 2 {
		t.Error("one of four leaves once")
	}
	tenure.Begin(1, 16)
	if got := steps(&tenure); got != "a 1" || tenure.Leave(a) {
		t.Errorf("%q; an owner that was served left", got)
	}
	tenure.Freed()
	if got := steps(&tenure); got != "c 2" || tenure.Leave(c) {
		t.Errorf("%q", got)
	}
}

func TestTenure_Take(t *testing.T) {
	var tenure Tenure[string]
	take := func(want uint64) {
		t.Helper()
		if f, ok := tenure.Take(); f != want || ok != (want > 0) {
			t.Errorf("got %d, %t; want %d", f, ok, want)
		}
	}
	take(0) // it has not begun
	tenure.Begin(5, 2)
	take(5)
	take(0) // an owner has it
	tenure.Freed()
	take(6)
	tenure.Freed()
	take(0) // no fence is left
	if got := steps(&tenure); got != "refill 4" {
		t.Errorf("%q", got)
	}
	tenure.Refilled(20, 4)
	take(20)
	tenure.Close()
	tenure.Freed()
	take(0)
}

func TestTenure_Abort(t *testing.T) {
	var tenure Tenure[string]
	join(&tenure, "a")
	join(&tenure, "b")
	if got := tenure.Abort(); !slices.Equal(got, []string{"a", "b"}) || tenure.Open() || tenure.Kept() {
		t.Errorf("%q were waiting", got)
	}
}

// Whatever happens, there is one owner at a time, in the order of arrival, each with a
// larger fence from a block that was reserved, and the release comes last.
func TestTenure_Random(t *testing.T) {
	for seed := range uint64(2000) {
		r := &random{t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 0)), group: 1, reserved: make(map[uint64]bool)}
		for range 100 {
			r.event()
		}
		r.finish()
	}
}

type random struct {
	t        *testing.T
	seed     uint64
	rand     *rand.Rand
	tenure   Tenure[int]
	places   []*Place[int] // that wait
	arrived  int
	busy     bool
	begun    bool
	released bool
	group    uint64 // the next fence of the group
	reserved map[uint64]bool
	last     uint64
	asked    uint32
}

func (r *random) block(n uint32) (first uint64, fences uint32) {
	first = r.group
	for range n {
		r.reserved[r.group] = true
		r.group++
	}
	r.group += r.rand.Uint64N(3) // those of other locks
	return first, n
}

func (r *random) event() {
	switch n := r.rand.IntN(20); {
	case n == 0:
		r.tenure.Close()
	case n < 2 && !r.begun:
		r.begun = true
		r.tenure.Begin(r.block(1 + r.rand.Uint32N(4)))
	case n < 5 && r.asked > 0:
		if r.rand.IntN(10) == 0 {
			r.tenure.Refilled(0, 0)
		} else {
			r.tenure.Refilled(r.block(1 + r.rand.Uint32N(r.asked)))
		}
		r.asked = 0
	case n < 7 && len(r.places) > 0:
		i := r.rand.IntN(len(r.places))
		if !r.tenure.Leave(r.places[i]) {
			r.t.Fatalf("seed %d: owner %d cannot leave", r.seed, r.places[i].Owner)
		}
		r.places = slices.Delete(r.places, i, i+1)
	case n < 13 && r.tenure.Open():
		r.arrived++
		p := &Place[int]{Owner: r.arrived}
		r.tenure.Join(p)
		r.places = append(r.places, p)
	case r.busy:
		r.busy = false
		r.tenure.Freed()
	}
	r.steps()
}

func (r *random) steps() {
	for {
		s := r.tenure.Next()
		if r.released && s.Action != Wait {
			r.t.Fatalf("seed %d: %+v after the release", r.seed, s)
		}
		switch s.Action {
		case Wait:
			return
		case Serve:
			if !r.begun || r.busy || s.Owner != r.places[0].Owner || s.Fence <= r.last || !r.reserved[s.Fence] {
				r.t.Fatalf("seed %d: %+v; busy %t, %d waits, the last fence is %d", r.seed, s, r.busy, r.places[0].Owner, r.last)
			}
			r.busy, r.last, r.places = true, s.Fence, r.places[1:]
		case Refuse:
			r.places = r.places[1:]
		case Refill:
			if r.asked > 0 {
				r.t.Fatalf("seed %d: two blocks at a time", r.seed)
			}
			r.asked = s.Fences
		case Release:
			if r.released = true; r.busy || len(r.places) > 0 || r.tenure.Open() {
				r.t.Fatalf("seed %d: released while busy %t, %d waiting", r.seed, r.busy, len(r.places))
			}
		}
	}
}

// finish lets everything end.
func (r *random) finish() {
	r.tenure.Close()
	for range 1000 {
		switch {
		case !r.begun:
			r.begun = true
			r.tenure.Begin(r.block(1))
		case r.asked > 0:
			r.tenure.Refilled(r.block(r.asked))
			r.asked = 0
		case r.busy:
			r.busy = false
			r.tenure.Freed()
		}
		r.steps()
	}
	if !r.released {
		r.t.Fatalf("seed %d: not released; %d wait", r.seed, len(r.places))
	}
}
