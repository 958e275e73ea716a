package raftlog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/conclave-go/conclave/internal/memdisk"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// One snapshot of several batches is discarded and one is installed, with table
// flushes in between and a power loss before each operation. The recovered log is
// the old state with its log or the new state without one, and contains no stage.
func TestPowerLoss_DuringInstall(t *testing.T) {
	t.Parallel()
	for name, kept := range unsyncedKept {
		if testing.Short() && kept != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) { // not in parallel: the images take hundreds of megabytes
			before, after, images := recordInstall(t, kept)
			seen, recovered := map[string]int{}, recoveries{}
			for i, image := range images {
				if testing.Short() && i%5 != 0 {
					continue
				}
				got := recovered.from(t, image)
				if got != after && (image.acknowledged == 2 || got != before) {
					t.Fatalf("operation %d, %d steps acknowledged: %.200s", i, image.acknowledged, got)
				}
				seen[got]++
			}
			if seen[before] == 0 || seen[after] == 0 {
				t.Errorf("%d images before the installation and %d after it", seen[before], seen[after])
			}
		})
	}
}

// recordInstall returns the content of the log before and after an installation,
// and the crash images between. Step 1 discards a snapshot, step 2 installs one.
func recordInstall(t *testing.T, kept int) (before, after string, images []crashImage) {
	t.Helper()
	r := &crashRecorder{disk: memdisk.New(), kept: kept, rng: rand.New(rand.NewPCG(8, 8))}
	store, log := openLog(t, storage.Options{FS: errorfs.Wrap(r.disk, r), MemTableSize: 256 << 10})
	bootstrap(t, log, 1, 2, 3)
	mustWrite(t, log, Append{HardState: hardState(2, 1, 4), Entries: entries(2, 6, 2)},
		Checkpoint{After: 1, Index: 4, Term: 2, Changes: largeChanges("old", 20)})
	mustWrite(t, log, Append{Entries: entries(7, 7, 2)}) // makes the Checkpoint durable
	before = mustReadLog(t, log)
	r.take()
	if err := stageLarge(t, log, "discarded").Discard(); err != nil {
		t.Fatal(err)
	}
	r.acknowledged.Store(1)
	generation, err := stageLarge(t, log, "installed").Finish()
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, log, Install{Index: 90, Term: 2, Digest: 9, ConfState: voters(1, 3), Generation: generation})
	r.acknowledged.Store(2)
	after = mustReadLog(t, log)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return before, after, r.take()
}

func largeChanges(value string, n int) (all []wire.Change) {
	for i := range n {
		all = append(all, set(fmt.Sprintf("k%04d", i), value+strings.Repeat(".", 9<<10)))
	}
	return all
}

// stageLarge stages more than two batches, with table flushes in between.
func stageLarge(t *testing.T, log *Log, value string) *Stage {
	t.Helper()
	stage, err := log.Stage()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range largeChanges(value, 300) {
		if err := stage.Put(c.Key, c.Value); err != nil {
			t.Fatal(err)
		}
		if i%100 != 99 {
			continue
		}
		if err := log.store.Do(func(db *pebble.DB) error { return db.Flush() }); err != nil {
			t.Fatal(err)
		}
	}
	return stage
}
