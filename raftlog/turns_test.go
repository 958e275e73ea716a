package raftlog

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave/storage"
)

// turnRig is a store in which time passes in synced writes and in waits only.
type turnRig struct {
	*sharedStore
	a, b  *Log
	now   time.Time
	seen  uint64        // synced writes, until now
	cost  time.Duration // of each of them from then on
	waits []time.Duration
	come  []func() // what is submitted in a wait, one after another
}

const largeWrite, turn = largeSubmission + 1, 4 * time.Millisecond

func newTurnRig(t *testing.T) *turnRig { return newTurnRigOn(t, vfs.NewMem()) }

func newTurnRigOn(t *testing.T, disk vfs.FS) *turnRig {
	store, logs := openLogs(t, storage.Options{FS: disk, Inline: true}, 3)
	r := &turnRig{a: logs[1], b: logs[2], now: time.Unix(0, 0)}
	r.sharedStore = &sharedStore{t: t, store: store, journal: r.a.journal, next: make(map[*Log]uint64)}
	r.journal.turns.now, r.journal.turns.wait = r.clock, r.wait
	r.costs(turn)
	run(r.submit(r.a, 10))
	return r
}

func (r *turnRig) clock() time.Time {
	r.now = r.now.Add(time.Duration(r.journal.synced-r.seen) * r.cost)
	r.seen = r.journal.synced
	return r.now
}

// costs sets what each synced write takes from now on.
func (r *turnRig) costs(each time.Duration) {
	r.clock()
	r.cost = each
}

// wait is turns.wait: what comes takes no time.
func (r *turnRig) wait(_ <-chan struct{}, limit time.Duration) bool {
	r.waits = append(r.waits, limit)
	if len(r.come) == 0 {
		r.now = r.now.Add(limit)
		return false
	}
	r.come[0]()
	r.come = r.come[1:]
	return true
}

func (r *turnRig) check(waits []time.Duration, written ...string) {
	r.t.Helper()
	if !slices.Equal(r.written, written) {
		r.t.Errorf("written %q, want %q", r.written, written)
	}
	if !slices.Equal(r.waits, waits) {
		r.t.Errorf("waits for at most %v, want %v", r.waits, waits)
	}
	if r.journal.large != 0 || len(r.journal.pending) != 0 {
		r.t.Error("submissions are left")
	}
}

// Behind a large batch others may write for as long as it took, also what they submit only then. What they submit does not extend that.
func TestTurns_SmallBetweenLarge(t *testing.T) {
	r := newTurnRig(t)
	run(r.submit(r.b, largeWrite))
	r.costs(turn / 4)
	tasks := r.submit(r.b, largeWrite)
	var others []func()
	for range 9 {
		r.come = append(r.come, func() { others = append(others, r.submit(r.a, 10)...) })
	}
	run(tasks)
	run(others)
	const small = "group 1, 1 operations in batch 1"
	r.check([]time.Duration{turn, turn * 3 / 4, turn / 2, turn / 4},
		small, "group 2, 1 operations in batch 1", small, small, small, small, "group 2, 1 operations in batch 5")
}

// The parts of a large submission wait too. What is small and behind it in its log is not written before.
func TestTurns_Parts(t *testing.T) {
	r := newTurnRig(t)
	tasks := r.submit(r.b, 2*SharedWrite, 2*SharedWrite)
	var others []func()
	r.come = []func(){
		func() { others = append(others, r.submit(r.b, 10)...) },
		func() { others = append(others, r.submit(r.a, 10)...); r.costs(turn / 2) },
	}
	run(tasks)
	run(others)
	const small = "group 1, 1 operations in batch 1"
	r.check([]time.Duration{turn, turn, turn / 2}, small, small, "group 2, 2 operations in batch 3", "group 2, 1 operations in batch 2")
}

// A log that is alone does not wait, and one whose neighbour is idle again does so no more.
func TestTurns_Alone(t *testing.T) {
	r := newTurnRig(t)
	for range askedTurns + 3 {
		r.costs(turn)
		run(r.submit(r.b, largeWrite))
		r.costs(0)
		run(r.submit(r.b, 10)) // its own small ones are no reason
	}
	if want := slices.Repeat([]time.Duration{turn}, askedTurns-1); !slices.Equal(r.waits, want) { // the first large one has none before it
		t.Errorf("waits for at most %v, want %v", r.waits, want)
	}
}

// A batch that took very long does not stop the next one for as long.
func TestTurns_AfterStall(t *testing.T) {
	r := newTurnRig(t)
	r.costs(time.Minute)
	run(r.submit(r.b, largeWrite))
	r.costs(0)
	run(r.submit(r.b, largeWrite))
	if want := []time.Duration{longestTurn}; !slices.Equal(r.waits, want) {
		t.Errorf("waits for at most %v, want %v", r.waits, want)
	}
}

// A small submission whose write fails in a wait is not reported as written, nor is what follows.
func TestTurns_DiskFails(t *testing.T) {
	failing := false
	r := newTurnRigOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if failing && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.EIO
		}
		return nil
	})))
	run(r.submit(r.b, largeWrite))
	r.written = nil
	tasks := r.submit(r.b, largeWrite)
	var others []func()
	r.come = []func(){func() { others, failing = r.submit(r.a, 10), true }}
	run(tasks)
	run(others)
	if err := r.store.Err(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the store has not failed: %v", err)
	}
	if len(r.written) > 0 {
		t.Errorf("reported after the failure: %q", r.written)
	}
}

// The wait ends with a small submission, or with its time.
func TestTurns_Wait(t *testing.T) {
	small := make(chan struct{}, 1)
	small <- struct{}{}
	if !waitForSmall(small, time.Hour) {
		t.Error("the time was over, although something had come")
	}
	if waitForSmall(small, 0) {
		t.Error("nothing had come")
	}
}
