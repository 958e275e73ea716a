package crash

import (
	"bytes"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/memdisk"
)

// fullDisk is a disk on which every operation from the nth on fails that changes it.
type fullDisk struct{ left atomic.Int64 }

func (f *fullDisk) String() string { return "full disk" }

func (f *fullDisk) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose || f.left.Add(-1) > 0 {
		return nil
	}
	return syscall.ENOSPC
}

// A disk that fails at any operation makes Recover and Restore return an error, unless
// all was durable before, and leaves what a power loss leaves.
func TestDiskFailure_RecoverAndRestore(t *testing.T) {
	old, last, backup := oldGroup(t)
	for name, run := range map[string]struct {
		disk  func() *vfs.MemFS
		run   func(vfs.FS) error
		check func(t *testing.T, w *image, err error)
	}{
		"recover": {
			func() *vfs.MemFS { return old.CrashClone(vfs.CrashCloneCfg{}) },
			func(disk vfs.FS) error { return conclave.Recover(onDisk(t, disk), "data") },
			func(t *testing.T, w *image, err error) {
				if isNew := wantNew(t, w.disk, last); err == nil && !isNew {
					t.Error("recovered, and the old group is there")
				}
			},
		},
		"restore": {
			vfs.NewCrashableMem,
			func(disk vfs.FS) error { return conclave.Restore(onDisk(t, disk), "data", bytes.NewReader(backup)) },
			func(t *testing.T, w *image, _ error) { w.checkRestore(t, last, backup) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			step := int64(1)
			if testing.Short() {
				step = 7
			}
			for n := int64(1); ; n += step {
				disk, full := memdisk.On(run.disk()), new(fullDisk)
				full.left.Store(n)
				err := run.run(errorfs.Wrap(disk, full))
				w := &image{disk: disk.CrashClone(vfs.CrashCloneCfg{})}
				if err == nil {
					w.acknowledged = 1
				} else if !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("operation %d: %v", n, err)
				}
				run.check(t, w, err)
				if full.left.Load() > 0 {
					t.Logf("%d operations", n-1)
					return
				}
			}
		})
	}
}
