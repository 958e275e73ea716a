package quota

import (
	"math/rand/v2"
	"testing"
)

func gets(n int, parties ...*Party) (all []int) {
	Divide(n, parties)
	for _, p := range parties {
		all = append(all, p.Gets)
	}
	return all
}

// Each gets its part rounded down or up, all together get all, and none gives so that another gets its part rounded up.
func TestDivide(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n, sum := random.IntN(60), 0
		var parties []*Party
		for range 1 + random.IntN(6) {
			p := &Party{Weight: 1 + random.IntN(5), Has: random.IntN(20)}
			parties, sum = append(parties, p), sum+p.Weight
		}
		all := 0
		for _, got := range gets(n, parties...) {
			all += got
		}
		if all != n {
			t.Fatalf("%d are given of %d", all, n)
		}
		for _, p := range parties {
			down := n * p.Weight / sum
			if p.Gets != down && (p.Gets != down+1 || n*p.Weight%sum == 0) {
				t.Fatalf("%d of %d with weight %d of %d", p.Gets, n, p.Weight, sum)
			}
			for _, q := range parties {
				if p.Has > p.Gets && p.Gets == down && n*p.Weight%sum != 0 && q.Gets > q.Has && q.Gets > n*q.Weight/sum {
					t.Fatalf("%+v gives, and %+v gets more than its part rounded down", *p, *q)
				}
			}
		}
	}
}

// With one more party, exactly what that one gets is taken from the others, if all have one weight. With others a part rounded down may become one
// rounded up.
func TestDivide_OneMore(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		n := random.IntN(100)
		var parties []*Party
		weight := 1 + random.IntN(4)
		for range 1 + random.IntN(8) {
			parties = append(parties, &Party{Weight: weight})
		}
		Divide(n, parties)
		for _, p := range parties {
			p.Has = p.Gets
		}
		Divide(n, parties)
		for _, p := range parties {
			if p.Gets != p.Has {
				t.Fatalf("%d of %d, and then %d", p.Has, n, p.Gets)
			}
		}
		added := &Party{Weight: weight}
		Divide(n, append(parties, added))
		moves := 0
		for _, p := range parties {
			moves += max(0, p.Has-p.Gets)
		}
		if moves != added.Gets {
			t.Fatalf("%d move, and the new one gets %d", moves, added.Gets)
		}
	}
}
