package raftlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3"
)

// wreck is a disk as a power cut left it, and how far the work had come: what
// was acknowledged then has to be there, what was not begun cannot.
type wreck struct {
	disk         *vfs.MemFS
	acknowledged int64 // steps, when it happened
	begun        int64
}

// blackout cuts the power at each operation that changes the disk, keeping
// some of what was not synced, and goes on.
type blackout struct {
	disk                *vfs.MemFS
	kept                int // percent; below 0: another each time
	acknowledged, begun atomic.Int64

	mu     sync.Mutex // guards what follows
	rng    *rand.Rand
	wrecks []wreck
}

func (b *blackout) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.kept
	if kept < 0 {
		kept = b.rng.IntN(101)
	}
	w := wreck{acknowledged: b.acknowledged.Load()} // read first: it grows meanwhile
	w.disk = b.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: b.rng})
	w.begun = b.begun.Load()
	b.wrecks = append(b.wrecks, w)
	return nil
}

func (b *blackout) String() string { return "blackout" }

// A power cut at any operation on the file system leaves a log that is as it
// was after one of the steps: not before the last one that had to be durable,
// and not after the last that was begun.
func TestPowerCutAnywhere(t *testing.T) {
	for name, kept := range map[string]int{"all unsynced lost": 0, "all kept": 100, "some kept": -1} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				t.Parallel()
				steps := script(seed, 40)
				for _, w := range wrecks(t, steps, kept, seed) {
					checkWreck(t, w, steps)
				}
			})
		}
	}
}

// wrecks carries the steps out with the power cut all along.
func wrecks(t *testing.T, steps []step, kept int, seed uint64) []wreck {
	b := &blackout{disk: vfs.NewCrashableMem(), kept: kept, rng: rand.New(rand.NewPCG(seed, 1))}
	store, err := storage.Open(storage.Options{FS: errorfs.Wrap(b.disk, b), MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	log, err := Open(store, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range steps {
		b.begun.Add(1)
		if i == 0 {
			err = log.Bootstrap(s.ops[0].(Install).ConfState)
		} else {
			err = play(log, s)
		}
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got, err := found(log); err != nil || got.String() != s.after.String() {
			t.Fatalf("after step %d: %v\nfound %v\nwant %v", i, err, got, s.after)
		}
		b.acknowledged.Add(1)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wrecks
}

func checkWreck(t *testing.T, w wreck, steps []step) {
	t.Helper()
	store, log, err := reopen(w.disk)
	if err != nil {
		t.Fatalf("with %d steps acknowledged: %v", w.acknowledged, err)
	}
	defer store.Close()
	got, err := found(log)
	if err != nil {
		t.Fatal(err)
	}
	possible := []*model{newModel()}
	for i, s := range steps[:w.begun] {
		if int64(i) < w.acknowledged && s.synced(possible[len(possible)-1]) {
			possible = possible[:0]
		}
		possible = append(possible, s.after)
	}
	if !slices.ContainsFunc(possible, func(m *model) bool { return m.String() == got.String() }) {
		t.Fatalf("with %d steps acknowledged and %d begun, found\n%v\nand the last one possible is\n%v", w.acknowledged, w.begun, got, possible[len(possible)-1])
	}
	startRaft(t, log)
}

func reopen(disk vfs.FS) (*storage.Store, *Log, error) {
	store, err := storage.Open(storage.Options{FS: disk})
	if err != nil {
		return nil, nil, err
	}
	log, err := Open(store, 0)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return store, log, nil
}

// startRaft lets raft judge a log: it panics where one contradicts itself.
func startRaft(t *testing.T, log *Log) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("raft does not start from this log: %v", p)
		}
	}()
	_, err := raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: log, Applied: log.Applied().Index,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16, AsyncStorageWrites: true,
		Logger: &raft.DefaultLogger{Logger: discard},
	})
	if err != nil {
		t.Error(err)
	}
}
