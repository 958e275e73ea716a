package raftlog

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/conclave-go/conclave/storage"
)

// The disk fails from one mutation after another while a log is in use. The
// error names a file, nothing is acknowledged afterwards, and on the repaired
// disk the same process opens the directory at once, with a log as it was after
// one of the steps.
func TestDiskFailure_FromAnyMutation(t *testing.T) {
	t.Parallel()
	steps := script(4, 40)
	for at := int64(1); failDiskFrom(t, at, steps); at += 3 {
	}
}

// failDiskFrom returns false when the work ended before the mutation at.
func failDiskFrom(t *testing.T, at int64, steps []step) bool {
	t.Helper()
	healthy := vfs.NewMem()
	var seen atomic.Int64
	disk := errorfs.Wrap(healthy, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpLock || seen.Add(1) < at {
			return nil
		}
		return syscall.EIO
	}))
	var p progress
	store, err := storage.Open(storage.Options{FS: disk, MemTableSize: 64 << 10})
	if err == nil {
		err = playAll(store, steps, &p)
		if closeErr := store.Close(); err == nil {
			err = closeErr
		}
	}
	failed := seen.Load() >= at
	if failed != errors.Is(err, syscall.EIO) || failed && !strings.Contains(err.Error(), " /") {
		t.Fatalf("mutation %d, failed %v: %v", at, failed, err)
	}
	p.check(t, steps, recoverLog(t, healthy))
	return failed
}

// playAll plays the steps until one fails, and counts them in p.
func playAll(store *storage.Store, steps []step, p *progress) error {
	log, err := Open(store)
	if err != nil {
		return err
	}
	for _, s := range steps {
		p.begun++
		if err := play(log, s); err != nil {
			return err
		}
		p.acknowledged++
	}
	return nil
}
