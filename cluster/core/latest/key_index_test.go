package latest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// An index finds what a map finds, after any insertions and removals, and no key is behind
// an empty slot.
func TestKeyIndex_FindsWhatMapFinds(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var x keyIndex
		var list []wire.Change
		want := make(map[string]int)
		keys := 1 + rng.IntN(300) // more than fit without growing
		for step := range 3000 {
			key := fmt.Appendf(nil, "k%d", rng.IntN(keys))
			slot, i := x.find(key, list)
			at, ok := want[string(key)]
			if !ok {
				at = -1
			}
			if i != at {
				t.Fatalf("seed %d, step %d: %q at %d, want %d", seed, step, key, i, at)
			}
			switch {
			case !ok && rng.IntN(3) > 0:
				x.insert(slot, len(list))
				want[string(key)] = len(list)
				list = append(list, wire.Change{Key: key})
			case ok && rng.IntN(2) == 0:
				x.remove(slot)
				delete(want, string(key))
			}
			wantKeys(t, &x, list, want)
		}
	}
}

func wantKeys(t *testing.T, x *keyIndex, list []wire.Change, want map[string]int) {
	t.Helper()
	inUse := 0
	for at, e := range x.slots {
		if e == 0 {
			continue
		}
		inUse++
		if i, ok := want[string(list[positionOf(e)].Key)]; !ok || i != positionOf(e) {
			t.Fatalf("slot %d has position %d, which was removed", at, positionOf(e))
		}
		for probe := hashOf(e) & x.mask(); probe != uint32(at); probe = (probe + 1) & x.mask() {
			if x.slots[probe] == 0 {
				t.Fatalf("slot %d is behind an empty one", at)
			}
		}
	}
	if inUse != len(want) || x.used != len(want) || 2*x.used > len(x.slots) {
		t.Fatalf("%d of %d slots are in use, %d by count, want %d", inUse, len(x.slots), x.used, len(want))
	}
}

// A key whose slot is at the end of the table may be at its beginning.
func TestKeyIndex_WrapsAround(t *testing.T) {
	var x keyIndex
	list := []wire.Change{{Key: []byte("a")}, {Key: []byte("b")}, {Key: []byte("c")}}
	x.find(nil, nil)
	for i := range list { // as if all of them had the last slot as their home
		s := keySlot{hash: x.mask(), at: (x.mask() + uint32(i)) & x.mask()}
		x.insert(s, i)
	}
	x.remove(keySlot{hash: x.mask(), at: x.mask()})
	if got := []int{positionOf(x.slots[x.mask()]), positionOf(x.slots[0]), positionOf(x.slots[1])}; !slices.Equal(got, []int{1, 2, -1}) {
		t.Errorf("positions %v, want 1, 2 and an empty slot", got)
	}
}
