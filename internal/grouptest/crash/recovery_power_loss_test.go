package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/memdisk"
)

var unsyncedKept = map[string]int{"unsynced data lost": 0, "unsynced data kept": 100, "unsynced data kept in part": -1}

// onDisk returns a context in which offline commands work on a disk.
func onDisk(t *testing.T, disk vfs.FS) context.Context {
	t.Helper()
	return cluster.WithSeams(grouptest.Bounded(t), cluster.Seams{FS: disk})
}

// oldGroup returns the disk of a group of one that has stopped, its last fence, and a
// backup.
func oldGroup(t *testing.T) (*vfs.MemFS, conclave.Fence, []byte) {
	t.Helper()
	disk := vfs.NewCrashableMem()
	n, err := startOn(grouptest.Bounded(t), disk)
	if err != nil {
		t.Fatal(err)
	}
	e := &workload{t: t, node: n}
	var last conclave.Fence
	for i, do := range firstProcess() {
		f, err := do(t.Context(), e)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		last = max(last, f)
	}
	var backup bytes.Buffer
	grouptest.Must(t, n.Backup(grouptest.Bounded(t), &backup))
	grouptest.Must(t, n.Close(t.Context()))
	return disk, last, backup.Bytes()
}

// wantNew checks that a group is the new one, or else the old one.
func wantNew(t *testing.T, disk vfs.FS, last conclave.Fence) (isNew bool) {
	t.Helper()
	n, err := startOn(grouptest.Bounded(t), disk)
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Kill(n)
	f := grouptest.MustLock(t, n.FencedLock("next"))
	if isNew = f>>48 == 1; f <= last {
		t.Errorf("fence %v after %v", f, last)
	}
	if e := grouptest.MustGet(t, n.KV(), "k/1"); string(e.Value) != "v" || e.Flags != 7 {
		t.Errorf("%+v", e)
	}
	locked := grouptest.MustGet(t, n.KV(), "mine").Session != conclave.SessionID{}
	if locked == isNew {
		t.Errorf("epoch %d, and the session that locked a key lives: %v", f>>48, locked)
	}
	return isNew
}

// Power loss before each operation of Recover: the directory is the old group's or the
// new one's, and the new one's if Recover had returned. Repeating it is possible.
func TestPowerLoss_Recover(t *testing.T) {
	for name, kept := range unsyncedKept {
		if testing.Short() && kept != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			disk, last, _ := oldGroup(t)
			b := newRecorder(kept)
			b.disk = memdisk.On(disk)
			grouptest.Must(t, conclave.Recover(onDisk(t, errorfs.Wrap(b.disk, b)), "data"))
			b.acknowledged.Add(1)
			images := b.taken()
			done := image{disk: b.disk.CrashClone(vfs.CrashCloneCfg{}), at: "end", acknowledged: 1}
			states := make(map[bool]int)
			for _, w := range append(images, done) {
				t.Run(w.at, func(t *testing.T) {
					again := w.disk.CrashClone(vfs.CrashCloneCfg{})
					isNew := wantNew(t, w.disk, last)
					states[isNew]++
					if w.acknowledged > 0 && !isNew {
						t.Error("the old group is back")
					}
					grouptest.Must(t, conclave.Recover(onDisk(t, again), "data"))
					if !wantNew(t, again, last) {
						t.Error("recovered, and the old group is there")
					}
				})
			}
			if t.Logf("%d operations: %v", len(images), states); len(states) != 2 {
				t.Error("want images of both groups")
			}
		})
	}
}

// Power loss before each operation of Restore: no member starts on what is there, as if
// the directory were new, and another Restore is possible; or it is complete.
func TestPowerLoss_Restore(t *testing.T) {
	_, last, backup := oldGroup(t)
	for name, kept := range unsyncedKept {
		if testing.Short() && kept != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := newRecorder(kept)
			grouptest.Must(t, conclave.Restore(onDisk(t, errorfs.Wrap(b.disk, b)), "data", bytes.NewReader(backup)))
			b.acknowledged.Add(1)
			images := b.taken()
			images = append(images, image{disk: b.disk.CrashClone(vfs.CrashCloneCfg{}), at: "end", acknowledged: 1})
			found := make(map[string]int)
			for _, w := range images {
				t.Run(w.at, func(t *testing.T) { found[w.checkRestore(t, last, backup)]++ })
			}
			if t.Logf("%d operations: %v", len(images), found); found["complete"] == 0 || found["unfinished"] == 0 {
				t.Error("want unfinished images and complete ones")
			}
		})
	}
}

// checkRestore returns what the image is: vacant, unfinished or complete.
func (w *image) checkRestore(t *testing.T, last conclave.Fence, backup []byte) string {
	t.Helper()
	again := w.disk.CrashClone(vfs.CrashCloneCfg{})
	names, err := w.disk.List("data")
	if err != nil || len(names) == 0 || fmt.Sprint(names) == "[LOCK]" {
		if w.acknowledged > 0 {
			t.Fatal("restored, and nothing is there")
		}
		return "vacant"
	}
	err = conclave.Restore(onDisk(t, again), "data", bytes.NewReader(backup))
	if err == nil {
		if n, err := startOn(grouptest.Bounded(t), w.disk); !errors.Is(err, conclave.ErrInvalid) {
			if err == nil {
				grouptest.Kill(n)
			}
			t.Fatalf("a member on an unfinished directory: %v", err)
		}
		if w.acknowledged > 0 {
			t.Fatal("restored, and unfinished")
		}
		wantNew(t, again, last)
		return "unfinished"
	}
	grouptest.WantError(t, err, conclave.ErrInvalid)
	if !wantNew(t, w.disk, last) {
		t.Error("not the new group")
	}
	return "complete"
}

// taken returns the images so far.
func (b *recorder) taken() []image {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.images
}
