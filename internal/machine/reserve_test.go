package machine

import (
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/machine/ordered"
)

// all returns the permits by end, and panics if a node's sum or priority is wrong.
func (r *reserve) all() []*permit {
	var all []*permit
	var walk func(*reserved) int64
	walk = func(n *reserved) int64 {
		if n == nil {
			return 0
		}
		sum := walk(n.left)
		all = append(all, n.permit)
		sum += int64(n.permit.n) + walk(n.right)
		for _, below := range []*reserved{n.left, n.right} {
			if below != nil && below.priority > n.priority {
				panic("the tree is not a heap of priorities")
			}
		}
		if sum != n.sum {
			panic("a node's sum is wrong")
		}
		return sum
	}
	walk(r.root)
	return all
}

func TestReserve_AgainstSlice(t *testing.T) {
	rand := newRand(1)
	r := reserve{visits: new(ordered.Visits)}
	var model []*permit
	for fence := range uint64(3000) {
		if len(model) > 0 && rand.IntN(100) < 45 {
			i := rand.IntN(len(model))
			r.remove(model[i])
			model = slices.Delete(model, i, i+1)
		} else {
			p := &permit{fence: fence, n: 1 + rand.Uint32N(3), delayUntil: rand.Int64N(50)}
			r.add(p)
			model = append(model, p)
			slices.SortFunc(model, byEnd)
		}
		if !slices.Equal(r.all(), model) || r.len != len(model) {
			t.Fatalf("after %d steps the reserve has %d permits, want %d", fence, len(r.all()), len(model))
		}
		n := 1 + rand.Int64N(100)
		var want *permit
		sum := int64(0)
		for _, p := range model {
			if sum += int64(p.n); sum >= n {
				want = p
				break
			}
		}
		if got := r.enough(n); got != want {
			t.Fatalf("%d are free with the end of %v, want %v", n, got, want)
		}
	}
}
