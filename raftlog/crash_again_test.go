package raftlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// The power goes again, before each operation of the opening that follows a
// power cut, and again while that one is recovered from. However often it
// happens, the log that opens in the end is the one of the first time, and goes
// on from there.
func TestPowerCutDuringRecovery(t *testing.T) {
	t.Parallel()
	steps := script(6, 30)
	first := wrecks(t, steps, 0, 6)
	rng := rand.New(rand.NewPCG(6, 6))
	for at := 0; at < len(first); at += 7 {
		disk := first[at].disk
		want := openedOn(t, disk.CrashClone(vfs.CrashCloneCfg{}))
		for range 2 {
			var cuts []*vfs.MemFS
			for _, w := range reopenings(t, disk, rng) {
				if got := openedOn(t, w.CrashClone(vfs.CrashCloneCfg{})); got != want {
					t.Fatalf("power cut %d: first\n%s\nand then\n%s", at, want, got)
				}
				cuts = append(cuts, w)
			}
			if len(cuts) == 0 {
				t.Fatal("opening a log touches nothing")
			}
			disk = cuts[rng.IntN(len(cuts))]
		}
		goesOn(t, disk)
	}
}

// reopenings are the disks that an opening leaves that is cut short.
func reopenings(t *testing.T, disk *vfs.MemFS, rng *rand.Rand) (all []*vfs.MemFS) {
	t.Helper()
	b := &blackout{disk: disk.CrashClone(vfs.CrashCloneCfg{}), rng: rng}
	store, _, err := reopen(errorfs.Wrap(b.disk, b))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, w := range b.wrecks {
		all = append(all, w.disk)
	}
	return all
}

func openedOn(t *testing.T, disk vfs.FS) string {
	t.Helper()
	store, log, err := reopen(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m, err := found(log)
	if err != nil {
		t.Fatal(err)
	}
	return m.String()
}

// goesOn appends to what was recovered, and finds it again after one more
// power cut.
func goesOn(t *testing.T, disk *vfs.MemFS) {
	t.Helper()
	store, log, err := reopen(disk)
	if err != nil {
		t.Fatal(err)
	}
	if !log.Bootstrapped() {
		if err := log.Bootstrap(members(1)); err != nil {
			t.Fatal(err)
		}
	}
	hard, _, _ := log.InitialState()
	last, _ := log.LastIndex()
	term := hard.GetTerm() + 1
	mustCarryOut(t, log, Append{HardState: hardState(term, 1, hard.GetCommit()), Entries: entries(last+1, last+3, term)})
	m, err := found(log)
	if err != nil {
		t.Fatal(err)
	}
	left := afterPowerCut(disk)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if got := openedOn(t, left); got != m.String() {
		t.Fatalf("acknowledged\n%s\nfound\n%s", m, got)
	}
}

// A snapshot of several batches is taken in, given up once and installed once,
// with the power cut before each operation, and the database busy with its
// tables meanwhile. There is the old state with its log, or the new one
// without; never a mixture, and nothing that was staged and not installed.
func TestPowerCutDuringInstallation(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]int{"all unsynced lost": 0, "all kept": 100, "some kept": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after, all := installation(t, kept)
			seen := map[string]int{}
			for i, w := range all {
				got, err := stateOn(w.disk)
				switch {
				case err != nil:
					t.Fatalf("operation %d: %v", i, err)
				case w.acknowledged == 2 && got != after, got != before && got != after:
					t.Fatalf("operation %d, %d steps acknowledged: %.200s", i, w.acknowledged, got)
				}
				seen[got]++
			}
			if seen[before] == 0 || seen[after] == 0 {
				t.Errorf("%d operations before the installation and %d after it", seen[before], seen[after])
			}
		})
	}
}

// installation returns the states before and after it, and the wrecks from when
// the first was acknowledged on. Step 1 is a snapshot given up, step 2 one
// installed.
func installation(t *testing.T, kept int) (before, after string, all []wreck) {
	t.Helper()
	b := &blackout{disk: vfs.NewCrashableMem(), kept: kept, rng: rand.New(rand.NewPCG(8, 8))}
	store, err := storage.Open(storage.Options{FS: errorfs.Wrap(b.disk, b), MemTableSize: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	log, err := Open(store, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Bootstrap(members(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Append{HardState: hardState(2, 1, 4), Entries: entries(2, 6, 2)},
		Apply{Index: 4, Term: 2, Changes: stagedChanges("old", 20)})
	mustCarryOut(t, log, Append{Entries: entries(7, 7, 2)}) // makes what was applied durable
	before = described(t, log)
	b.mu.Lock()
	b.wrecks = nil
	b.mu.Unlock()
	stage := staged(t, log, "given up")
	if err := stage.Discard(); err != nil {
		t.Fatal(err)
	}
	b.acknowledged.Store(1)
	generation, err := staged(t, log, "new").Finish()
	if err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Install{Index: 90, Term: 2, Digest: 9, ConfState: members(1, 3), Generation: generation})
	b.acknowledged.Store(2)
	after = described(t, log)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return before, after, b.wrecks
}

func stagedChanges(value string, n int) (all []wire.Change) {
	for i := range n {
		all = append(all, set(fmt.Sprintf("k%04d", i), value+strings.Repeat(".", 9<<10)))
	}
	return all
}

// staged takes in more than two batches, with the tables flushed in between.
func staged(t *testing.T, log *Log, value string) *Stage {
	t.Helper()
	stage, err := log.Stage()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range stagedChanges(value, 300) {
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

// described is the log and its state.
func described(t *testing.T, log *Log) string {
	t.Helper()
	m, err := found(log)
	if err != nil {
		t.Fatal(err)
	}
	return m.String()
}

func stateOn(disk vfs.FS) (string, error) {
	store, log, err := reopen(disk)
	if err != nil {
		return "", err
	}
	defer store.Close()
	m, err := found(log)
	if err != nil {
		return "", err
	}
	return m.String(), errors.Join(noLeftovers(log), store.Err())
}

// noLeftovers looks for state of other generations than the valid one.
func noLeftovers(log *Log) error {
	db, giveBack, err := log.store.Borrow()
	if err != nil {
		return err
	}
	defer giveBack()
	unused, err := unusedGenerations(db, log.group, log.disk.generation)
	if err == nil && len(unused) > 0 {
		err = fmt.Errorf("generations %v are left", unused)
	}
	return err
}
