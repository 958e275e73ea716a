package raftlog

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/conclave-go/conclave/storage"
)

// crashImage is a disk after a power loss, with the progress at that moment.
// Steps acknowledged by then must be present, steps not begun must not.
type crashImage struct {
	disk         *vfs.MemFS
	acknowledged int64
	begun        int64
}

// crashRecorder records a crash image before each operation that modifies the
// disk.
type crashRecorder struct {
	disk                *vfs.MemFS
	kept                int // percentage of unsynced data that survives; below 0: random
	acknowledged, begun atomic.Int64

	mu     sync.Mutex // protects the fields below
	rng    *rand.Rand
	images []crashImage
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
	image := crashImage{acknowledged: r.acknowledged.Load()} // before the clone: it grows meanwhile
	image.disk = r.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: r.rng})
	image.begun = r.begun.Load()
	r.images = append(r.images, image)
	return nil
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
	r := &crashRecorder{disk: vfs.NewCrashableMem(), kept: kept, rng: rand.New(rand.NewPCG(seed, 1))}
	store, err := storage.Open(storage.Options{FS: errorfs.Wrap(r.disk, r), MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	log, err := Open(store, 0)
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

// check checks that the log recovered from an image is the one after a step: not
// before the last acknowledged synced step, and not after the last one begun.
func (image crashImage) check(t *testing.T, steps []step, recovered recoveries) {
	t.Helper()
	got := recovered.from(t, image.disk)
	possible := []*model{newModel()}
	for i, s := range steps[:image.begun] {
		if int64(i) < image.acknowledged && s.synced(possible[len(possible)-1]) {
			possible = possible[:0]
		}
		possible = append(possible, s.after)
	}
	if !slices.ContainsFunc(possible, func(m *model) bool { return m.String() == got }) {
		t.Fatalf("%d steps acknowledged, %d begun: recovered\n%s\nlast possible\n%s", image.acknowledged, image.begun, got, possible[len(possible)-1])
	}
}

// recoveries maps the digest of a disk to the log recovered from it. Most images
// of one run equal another one byte for byte, above all where unsynced data is
// lost, and recovery depends on nothing else.
type recoveries map[[sha256.Size]byte]string

// from recovers the log from a disk. Raft must start from it, and it must contain
// no generation but the installed one.
func (r recoveries) from(t *testing.T, disk *vfs.MemFS) string {
	t.Helper()
	digest := diskDigest(t, disk)
	if content, ok := r[digest]; ok {
		return content
	}
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
	r[digest] = content
	return content
}

// diskDigest returns a digest of all files in the data directory.
func diskDigest(t *testing.T, disk *vfs.MemFS) (digest [sha256.Size]byte) {
	t.Helper()
	names, err := disk.List("/conclave")
	if err != nil {
		return digest // there is no directory yet
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
		file, err := disk.Open("/conclave/" + name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%q %d\n", name, info.Size())
		if _, err := io.Copy(h, file); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	h.Sum(digest[:0])
	return digest
}
