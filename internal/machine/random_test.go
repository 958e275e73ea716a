package machine

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

var (
	commands = flag.Int("commands", 200_000, "how many random commands to compare with the reference")
	seedFlag = flag.Uint64("seed", 0, "the one seed to run; 0 runs as many as the commands need")
)

// Random logs, outcome by outcome against the reference, with a second machine
// that is now and then thrown away and loaded from the disk.
func TestRandomAgainstReference(t *testing.T) {
	const perSeed = 2_000
	if *seedFlag != 0 {
		runRandom(t, *seedFlag, perSeed)
		return
	}
	for seed := range uint64(*commands / perSeed) {
		if runRandom(t, seed+1, perSeed); t.Failed() {
			return
		}
	}
}

func runRandom(t *testing.T, seed uint64, n int) {
	t.Helper()
	g := newGenerator(seed)
	r := newRig()
	for g.made < n {
		data := g.entry(&r.twin)
		if g.rand.IntN(20) == 0 {
			if err := r.reload(); err != nil {
				t.Fatalf("seed %d, index %d: reload: %v", seed, r.index, err)
			}
		}
		if err := r.apply(data); err != nil {
			t.Fatalf("seed %d, index %d: %v\nrepeat: go test ./internal/machine -run TestRandom -seed %d", seed, r.index, err, seed)
		}
	}
}

// rig applies each entry to a machine, to one that is reloaded, and to the
// reference, and complains at the first difference.
type rig struct {
	index    uint64
	straight *Machine
	loaded   *Machine
	disk     disk
	twin     reference
	fence    uint64            // the largest seen
	held     map[string]uint64 // fences by lock
	last     wire.Result
}

func newRig() *rig { return &rig{straight: New(), loaded: New(), disk: disk{}} }

// reload goes on from the disk, which must hold neither more nor less than the
// state.
func (r *rig) reload() (err error) {
	if len(r.disk) > 0 && !(r.disk.equal(dump(r.straight)) && r.disk.equal(dump(r.loaded))) {
		return errors.New("the changes do not add up to the state")
	}
	r.loaded, err = Load(r.disk.pairs())
	return err
}

func (r *rig) apply(data []byte) error {
	r.index++
	due, pending := r.straight.NextDeadline()
	r.last = r.straight.Apply(r.index, 1, data)
	if other := r.loaded.Apply(r.index, 1, data); !sameResult(r.last, other) {
		return fmt.Errorf("the loaded machine differs:\n%v\n%v", r.last, other)
	}
	if err := r.disk.write(r.last.Changes); err != nil {
		return err
	}
	if err := errors.Join(audit(r.straight), r.checkFences()); err != nil {
		return err
	}
	batch := new(wire.Batch)
	switch {
	case len(data) == 0:
		batch = nil
	case proto.Unmarshal(data, batch) != nil || batch.Version != wire.BatchVersion:
		if len(r.last.Changes)+len(r.last.Outcomes)+len(r.last.Ended) > 0 {
			return fmt.Errorf("what is no batch had an effect")
		}
		return nil
	}
	if batch != nil && len(batch.Submissions) == 0 {
		if fired, want := fired(r.last), pending && due <= r.straight.Now(); fired != want {
			return fmt.Errorf("next deadline %d, now %d, fired %v", due, r.straight.Now(), fired)
		}
	}
	return r.compare(batch)
}

// fired says whether an empty batch did more than move the clock.
func fired(r wire.Result) bool {
	return slices.ContainsFunc(r.Changes, func(c wire.Change) bool { return string(c.Key) != machineKey })
}

func (r *rig) compare(batch *wire.Batch) error {
	outcomes, ended := r.twin.apply(r.index, batch)
	if len(outcomes) != len(r.last.Outcomes) {
		return fmt.Errorf("%v\noutcomes %v\nwant     %v", batch, r.last.Outcomes, outcomes)
	}
	for i, got := range r.last.Outcomes {
		reply := proto.CloneOf(got.Reply)
		reply.Detail = "" // for people
		want := outcomes[i]
		if got.Ticket != want.Ticket || got.More != want.More || !proto.Equal(reply, want.Reply) {
			return fmt.Errorf("%v\noutcome %v\nwant    %v", batch, got, want)
		}
	}
	if r.twin.now != r.straight.Now() {
		return fmt.Errorf("now %d, want %d", r.straight.Now(), r.twin.now)
	}
	if len(ended)+len(r.last.Ended) > 0 && !reflect.DeepEqual(ended, r.last.Ended) {
		return fmt.Errorf("%v\nended %v\nwant  %v", batch, r.last.Ended, ended)
	}
	return nil
}

// checkFences wants each hold that began in this entry to have a larger fence
// than all that were ever seen before it.
func (r *rig) checkFences() error {
	held := make(map[string]uint64)
	largest := r.fence
	for _, v := range r.straight.Locks("", len(r.straight.locks)) {
		if !v.Held {
			continue
		}
		held[v.Name] = v.Fence
		if v.Fence != r.held[v.Name] && v.Fence <= r.fence {
			return fmt.Errorf("lock %q has fence %d after %d", v.Name, v.Fence, r.fence)
		}
		largest = max(largest, v.Fence)
	}
	r.held, r.fence = held, largest
	return nil
}

func sameResult(a, b wire.Result) bool {
	if len(a.Outcomes) != len(b.Outcomes) || !reflect.DeepEqual(a.Changes, b.Changes) || !reflect.DeepEqual(a.Ended, b.Ended) {
		return false
	}
	for i := range a.Outcomes {
		x, y := a.Outcomes[i], b.Outcomes[i]
		if x.Ticket != y.Ticket || x.More != y.More || !proto.Equal(x.Reply, y.Reply) {
			return false
		}
	}
	return true
}

// newRand makes a seed's source of randomness.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
