package slots

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/machine/ordered"
)

// records is what would be stored.
type records map[string]string

func (r records) Put(f *Former)  { r[fmt.Sprint(f.Semaphore, f.Number)] = f.Session }
func (r records) Drop(f *Former) { delete(r, fmt.Sprint(f.Semaphore, f.Number)) }

// acquired is numbers that one session has, or that are under a lock-delay.
type acquired struct {
	numbers []uint32
	session string
	delayed bool
}

// Random users of one semaphore, whose limit changes: as long as the sum of the permits fits the limit, each gets as
// many numbers below it that are free, those of its name before the smallest.
func TestNumbers_AgainstSet(t *testing.T) {
	for seed := range uint64(100) {
		rng, r := rand.New(rand.NewPCG(seed, 0)), records{}
		space := NewSpace(new(ordered.Visits), r)
		space.MostEach, space.MostBytes = 1+rng.IntN(20), 70+rng.IntN(1000)
		x, limit, all := new(Numbers), uint32(1+rng.IntN(40)), []acquired(nil)
		taken := func() map[uint32]bool {
			m := make(map[uint32]bool)
			for _, a := range all {
				for _, n := range a.numbers {
					m[n] = a.delayed
				}
			}
			return m
		}
		for range 400 {
			switch i := rng.IntN(10); {
			case i == 0:
				limit = uint32(1 + rng.IntN(40))
			case i < 6:
				n, session := 1+rng.IntN(4), []string{"", "a", "b"}[rng.IntN(3)]
				before := taken()
				if len(before)+n > int(limit) {
					continue
				}
				want := wanted(x, before, session, n, limit)
				got := x.Take(space, session, n, limit)
				if !slices.Equal(got, want) || !Valid(got, limit) {
					t.Fatalf("seed %d: %q got %v of %v below %d, want %v", seed, session, got, before, limit, want)
				}
				all = append(all, acquired{numbers: got, session: session})
			case len(all) > 0:
				at := rng.IntN(len(all))
				switch a := &all[at]; {
				case !a.delayed && i < 8:
					x.Remember(space, "s", a.session, a.numbers)
					a.delayed = true
				default:
					x.Free(space, a.numbers)
					if !a.delayed {
						x.Remember(space, "s", a.session, a.numbers)
					}
					all = slices.Delete(all, at, at+1)
				}
			}
			if err := check(x, space, r, taken()); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		x.Forget(space)
		for _, a := range all {
			x.Free(space, a.numbers)
		}
		if err := check(x, space, r, nil); err != nil || len(r) != 0 || *x != (Numbers{}) {
			t.Fatalf("seed %d: what remains at the end takes memory: %v, %v, %v", seed, x, r, err)
		}
	}
}

// wanted chooses the numbers without trees.
func wanted(x *Numbers, taken map[uint32]bool, session string, n int, limit uint32) (want []uint32) {
	for f := range x.Former() {
		if _, is := taken[f.Number]; f.Session == session && !is && f.Number < limit {
			want = append(want, f.Number)
		}
	}
	slices.Sort(want)
	want = want[:min(n, len(want))]
	for i := uint32(0); len(want) < n; i++ {
		if _, is := taken[i]; !is && !slices.Contains(want, i) {
			want = append(want, i)
		}
	}
	slices.Sort(want)
	return want
}

func check(x *Numbers, space *Space, r records, taken map[uint32]bool) error {
	if err := x.Check(taken); err != nil {
		return err
	}
	remembered := records{}
	for f := range x.Former() {
		remembered.Put(f)
	}
	if !maps.Equal(remembered, r) {
		return fmt.Errorf("%v are remembered, and %v stored", remembered, r)
	}
	return space.Check(len(remembered))
}

// The memory and the work do not depend on how large the numbers are, or how many have been free.
func TestNumbers_ManyFree(t *testing.T) {
	const n = 1 << 20
	visits := new(ordered.Visits)
	space, x := NewSpace(visits, records{}), new(Numbers)
	for i := range uint32(n) {
		x.taken.add(i, space)
	}
	for i := range uint32(n - 1) {
		x.Free(space, []uint32{i})
	}
	if x.taken.spans.Len() != 1 || !x.taken.has(n-1) || x.taken.has(n-2) {
		t.Errorf("%d spans for one number", x.taken.spans.Len())
	}
	before := visits.Total()
	for range 1000 {
		if got := x.Take(space, "", 2, n); got[0] != 0 || got[1] != 1 {
			t.Fatal(got)
		}
		x.Free(space, []uint32{0, 1})
	}
	if n := visits.Total() - before; n > 20_000 {
		t.Errorf("1000 grants have looked at %d elements", n)
	}
}
