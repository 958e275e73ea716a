package raftlog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/conclave-go/conclave/internal/memdisk"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// prepareSeed stages the state of a new group beside the one of an old log.
func prepareSeed(t *testing.T, log *Log) Seed {
	t.Helper()
	stage, err := log.Stage()
	if err != nil {
		t.Fatal(err)
	}
	if err := stage.Put([]byte("new"), []byte("1")); err != nil {
		t.Fatal(err)
	}
	generation, err := stage.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return Seed{
		Install: Install{Index: 9, Term: 4, Generation: generation, ConfState: voters(7), HardState: hardState(4, 0, 9)},
		Locals:  map[string][]byte{"identity": []byte("new")},
	}
}

// oldLog writes the log of a member of an old group.
func oldLog(t *testing.T, log *Log) {
	t.Helper()
	bootstrap(t, log, 1, 2)
	mustWrite(t, log, Append{HardState: hardState(3, 2, 3), Entries: entries(2, 5, 1)},
		Checkpoint{After: 1, Index: 2, Term: 1, Digest: 22, Changes: []wire.Change{set("a", "1")}})
	for _, name := range []string{"identity", "peer/1", "divergence"} {
		if err := log.SetLocal(name, []byte("old")); err != nil {
			t.Fatal(err)
		}
	}
}

// content describes all that a Seed replaces.
func content(t *testing.T, log *Log) string {
	t.Helper()
	locals, err := log.Locals("")
	if err != nil {
		t.Fatal(err)
	}
	term, last, lastTerm := log.Position()
	_, conf, _ := log.InitialState()
	return fmt.Sprintf("%s %s, term %d, last %d of %d, applied %+v, unapplied %d, voters %v",
		readState(t, log), locals, term, last, lastTerm, log.Applied(), len(log.Unapplied()), conf.GetVoters())
}

const (
	oldContent = "map[a:1] map[divergence:old identity:old peer/1:old], term 3, last 5 of 1, applied {Index:2 Term:1 Digest:22}, unapplied 3, voters [1 2]"
	newContent = "map[new:1] map[identity:new], term 4, last 9 of 4, applied {Index:9 Term:4 Digest:0}, unapplied 0, voters [7]"
)

// A power loss at any operation while a seed is written leaves the old log or the new one.
func TestSeed_PowerLoss(t *testing.T) {
	for name, kept := range unsyncedKept {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			store, log, err := openDisk(disk)
			if err != nil {
				t.Fatal(err)
			}
			oldLog(t, log)
			if got := content(t, log); got != oldContent {
				t.Fatalf("%s", got)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			r := &crashRecorder{disk: memdisk.On(disk), kept: kept, rng: rand.New(rand.NewPCG(3, 1))}
			store, log, err = openDisk(errorfs.Wrap(r.disk, r))
			if err != nil {
				t.Fatal(err)
			}
			if err := log.Execute(prepareSeed(t, log)); err != nil {
				t.Fatal(err)
			}
			r.acknowledged.Add(1)
			if got := content(t, log); got != newContent {
				t.Errorf("%s", got)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			found := make(map[string]int)
			for _, image := range r.take() {
				store, log, err := openDisk(afterPowerLoss(image.disk))
				if err != nil {
					t.Fatal(err)
				}
				got := content(t, log)
				if found[got]++; got != newContent && (got != oldContent || image.acknowledged > 0) {
					t.Errorf("after %d acknowledged: %s", image.acknowledged, got)
				}
				startRaft(t, log)
				store.Close()
			}
			if len(found) != 2 {
				t.Errorf("want images before and after the seed: %v", found)
			}
		})
	}
}

// A log that is opened to be read changes no file, and refuses writes.
func TestOpen_ReadOnly(t *testing.T) {
	disk := vfs.NewCrashableMem()
	store, log, err := openDisk(disk)
	if err != nil {
		t.Fatal(err)
	}
	oldLog(t, log)
	prepareSeed(t, log) // a stage that is left behind
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	before := readFiles(t, disk)
	store, err = storage.Open(storage.Options{FS: disk, Access: storage.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	if log, err = Open(store); err != nil {
		t.Fatal(err)
	}
	if got := content(t, log); got != oldContent {
		t.Error(got)
	}
	if err := log.Execute(Seed{}); err == nil {
		t.Error("written")
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if after := readFiles(t, disk); !maps.EqualFunc(before, after, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Error("the files have changed")
	}
	overwrite(t, disk, "/conclave/WATERMARK", 0, make([]byte, 2*watermarkSlot))
	if store, err = storage.Open(storage.Options{FS: disk, Access: storage.ReadOnly}); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err = Open(store); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("without a watermark: %v", err)
	}
}

// The pages of a view are the state, in order, whatever their size.
func TestView_Pages(t *testing.T) {
	_, log := openLog(t, storage.Options{})
	bootstrap(t, log, 1)
	var changes []wire.Change
	for i := range 50 {
		changes = append(changes, set(fmt.Sprintf("k%02d", i), fmt.Sprint("value ", i)))
	}
	changes = append(changes, set("k", ""), set("k\x00", "nul"))
	mustWrite(t, log, Append{HardState: hardState(1, 0, 2), Entries: entries(2, 2, 1)}, Checkpoint{After: 1, Index: 2, Term: 1, Changes: changes})
	view, err := log.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	want := readState(t, log)
	for _, size := range []int{1, 30, 1 << 20} {
		got, after, last := map[string]string{}, []byte(nil), ""
		for {
			pairs, err := view.Page(after, size)
			if err != nil {
				t.Fatal(err)
			}
			if len(pairs) == 0 {
				break
			}
			for _, p := range pairs {
				if string(p.Key) <= last {
					t.Fatalf("%q after %q", p.Key, last)
				}
				last, after = string(p.Key), p.Key
				got[last] = string(p.Value)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("pages of %d bytes: %v", size, got)
		}
	}
}
