package raftlog

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/conclave-go/conclave/internal/memdisk"
	"github.com/conclave-go/conclave/storage"
)

// crashImage is a disk after a power loss, with the progress at that moment.
type crashImage struct {
	progress
	digest digest
	disk   *vfs.MemFS // shared by images of equal content: clone before use
}

// progress is how many steps were begun and acknowledged. Acknowledged steps
// must be recovered, steps not begun must not.
type progress struct{ acknowledged, begun int64 }

// crashRecorder records a crash image before each operation that modifies the
// disk.
type crashRecorder struct {
	disk                *memdisk.Disk
	kept                int // percentage of unsynced data that survives; below 0: random
	acknowledged, begun atomic.Int64

	mu     sync.Mutex // protects the fields below
	rng    *rand.Rand
	images []crashImage
	disks  map[digest]*vfs.MemFS // of images
}

func (r *crashRecorder) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.kept
	if kept < 0 {
		kept = r.rng.IntN(101)
	}
	var image crashImage
	image.acknowledged = r.acknowledged.Load() // before the clone: it grows meanwhile
	disk := r.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: r.rng})
	image.begun = r.begun.Load()
	image.digest, image.disk = r.share(disk)
	r.images = append(r.images, image)
	return nil
}

// share returns the disk of an earlier image with the same content, if there is
// one: most images equal another one, above all where unsynced data is lost.
func (r *crashRecorder) share(disk *vfs.MemFS) (digest, *vfs.MemFS) {
	d, err := digestOf(disk)
	if err != nil {
		panic(err) // MemFS does not fail
	}
	if r.disks == nil {
		r.disks = map[digest]*vfs.MemFS{}
	}
	if r.disks[d] == nil {
		r.disks[d] = disk
	}
	return d, r.disks[d]
}

func (r *crashRecorder) String() string { return "crash recorder" }

// take returns the images since the last take.
func (r *crashRecorder) take() []crashImage {
	r.mu.Lock()
	defer r.mu.Unlock()
	images := r.images
	r.images = nil
	return images
}

// unsyncedKept are the percentages of unsynced data that survive a power loss.
var unsyncedKept = map[string]int{"all unsynced lost": 0, "all unsynced kept": 100, "some unsynced kept": -1}

// recordScript plays the steps on a new disk and returns the crash images.
func recordScript(t *testing.T, steps []step, kept int, seed uint64) []crashImage {
	t.Helper()
	r := &crashRecorder{disk: memdisk.New(), kept: kept, rng: rand.New(rand.NewPCG(seed, 1))}
	store, err := storage.Open(storage.Options{FS: errorfs.Wrap(r.disk, r), MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	log, err := Open(store)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range steps {
		r.begun.Add(1)
		if err := play(log, s); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got := mustReadLog(t, log); got != s.after.String() {
			t.Fatalf("after step %d: got\n%s\nwant\n%s", i, got, s.after)
		}
		r.acknowledged.Add(1)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return r.take()
}

// check checks that a recovered log is the one after a step: not before the last
// acknowledged synced step, and not after the last one begun.
func (p progress) check(t *testing.T, steps []step, recovered string) {
	t.Helper()
	possible := []*model{newModel()}
	for i, s := range steps[:p.begun] {
		if int64(i) < p.acknowledged && s.synced(possible[len(possible)-1]) {
			possible = possible[:0]
		}
		possible = append(possible, s.after)
	}
	if !slices.ContainsFunc(possible, func(m *model) bool { return m.String() == recovered }) {
		t.Fatalf("%d steps acknowledged, %d begun: recovered\n%s\nlast possible\n%s", p.acknowledged, p.begun, recovered, possible[len(possible)-1])
	}
}

// recoveries caches the logs recovered from images by the content of the disk,
// on which alone recovery depends.
type recoveries map[digest]string

func (r recoveries) from(t *testing.T, image crashImage) string {
	t.Helper()
	if content, ok := r[image.digest]; ok {
		return content
	}
	content := recoverLog(t, afterPowerLoss(image.disk))
	for _, known := range r {
		if known == content {
			content = known // few contents are distinct, and some are large
		}
	}
	r[image.digest] = content
	return content
}

// recoverLog opens a disk and returns the content of its log. Raft must start
// from it, and it must contain no generation but the installed one.
func recoverLog(t *testing.T, disk *vfs.MemFS) string {
	t.Helper()
	store, log, err := openDisk(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	content := mustReadLog(t, log)
	startRaft(t, log)
	if generations := unused(t, log); len(generations) > 0 {
		t.Errorf("unused generations %v remain", generations)
	}
	if err := store.Err(); err != nil {
		t.Fatal(err)
	}
	return content
}

// digest identifies the content of a disk.
type digest [sha256.Size]byte

func digestOf(disk *vfs.MemFS) (d digest, err error) {
	names, err := disk.List("/conclave")
	if err != nil {
		return d, nil // there is no directory yet
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
		file, err := disk.Open("/conclave/" + name)
		if err != nil {
			return d, err
		}
		info, err := file.Stat()
		if err == nil {
			fmt.Fprintf(h, "%q %d\n", name, info.Size())
			_, err = io.Copy(h, file)
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return d, err
		}
	}
	h.Sum(d[:0])
	return d, nil
}
