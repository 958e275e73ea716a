package core

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// A key that is on the disk is deleted and created again before the next checkpoint. The
// checkpoint has its last change, and that is no creation: another deletion is written.
func TestCheckpoint_KeyDeletedAndCreatedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		changes []wire.Change // one in each entry
		want    []string
	}{
		"in a free place": {[]wire.Change{created("other", "1"), deleted("k"), deleted("other"), created("k", "2")}, []string{"k=2"}},
		"in a later one":  {[]wire.Change{deleted("k"), created("k", "2")}, []string{"k=2"}},
		"without flag":    {[]wire.Change{deleted("k"), change("k", "2")}, []string{"k=2"}},
		"twice":           {[]wire.Change{deleted("k"), created("k", "2"), deleted("k"), created("k", "3")}, []string{"k=3"}},
		"and deleted":     {[]wire.Change{deleted("k"), created("k", "2"), deleted("k")}, nil},
		"and changed":     {[]wire.Change{created("other", "1"), deleted("k"), deleted("other"), created("k", "2"), change("k", "3")}, []string{"k=3"}},
		"not deleted":     {[]wire.Change{change("k", "2"), created("k", "3")}, []string{"k=3"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).follow()
			r.applyResult(fact.Result{Changes: []wire.Change{created("k", "1")}})
			r.Checkpoint()
			r.settle()
			r.wantState("k=1")
			for _, c := range test.changes {
				r.applyResult(fact.Result{Changes: []wire.Change{c}})
			}
			r.Checkpoint()
			r.settle()
			r.wantState(test.want...)
		})
	}
}

// The disk has the state that is applied after each checkpoint, whichever keys come, go and come
// back, and whether their creation is stated or not. A wrong statement about a key that has changed
// since the last checkpoint does no harm either.
func TestGathered_DiskHasStateApplied(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := checkpoints{raftNode: new(raftNode), digests: new(digests)}
		disk, state := map[string]string{}, map[string]string{}
		keys := 1 + rng.IntN(12)
		for round := range 20 {
			changed := map[string]bool{}
			for range rng.IntN(12) {
				c.gathered.add(randomChanges(rng, keys, state, changed), &raftpb.Entry{}, 0)
			}
			op, _ := c.takeCheckpoint()
			if n := duplicates(op.Changes); n > 0 || !slices.IsSortedFunc(op.Changes, deletionsFirst) {
				t.Fatalf("seed %d: %d keys twice, or not the deletions first", seed, n)
			}
			for _, c := range op.Changes {
				if delete(disk, string(c.Key)); c.Value != nil {
					disk[string(c.Key)] = string(c.Value)
				}
			}
			if !maps.Equal(disk, state) {
				t.Fatalf("seed %d, checkpoint %d: the disk has %v, want %v", seed, round, disk, state)
			}
		}
	}
}

// randomChanges is the changes of an entry, each key once.
func randomChanges(rng *rand.Rand, keys int, state map[string]string, changed map[string]bool) (changes []wire.Change) {
	for _, k := range rng.Perm(keys)[:rng.IntN(keys+1)] {
		key := fmt.Sprint("k", k)
		_, exists := state[key]
		c := wire.Change{Key: []byte(key), Created: !exists && rng.IntN(4) > 0 || exists && changed[key] && rng.IntN(8) == 0}
		if delete(state, key); rng.IntN(2) == 0 {
			c.Value = fmt.Append([]byte{}, rng.IntN(100))
			state[key] = string(c.Value)
		}
		if changed[key] = true; exists && c.Value == nil {
			c.Created = false // it is deleted
		}
		changes = append(changes, c)
	}
	return changes
}

func deletionsFirst(a, b wire.Change) int {
	rank := map[bool]int{true: 0, false: 1}
	return rank[a.Value == nil] - rank[b.Value == nil]
}

func duplicates(changes []wire.Change) (n int) {
	keys := map[string]bool{}
	for _, c := range changes {
		if keys[string(c.Key)] {
			n++
		}
		keys[string(c.Key)] = true
	}
	return n
}
