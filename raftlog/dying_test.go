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

// A disk dies at one mutation after another while a log is at work. The failure
// names a file, nothing is acknowledged after it, and the healed directory
// opens at once in the same process as it was after one of the steps that it
// may show.
func TestADyingDisk(t *testing.T) {
	steps := script(4, 40)
	for at := int64(1); diesAt(t, at, steps); at += 3 {
	}
}

// diesAt returns false when the disk has outlived the work.
func diesAt(t *testing.T, at int64, steps []step) bool {
	t.Helper()
	healthy := vfs.NewMem()
	var seen atomic.Int64
	disk := errorfs.Wrap(healthy, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpLock || seen.Add(1) < at {
			return nil
		}
		return syscall.EIO
	}))
	w := wreck{disk: healthy}
	store, err := storage.Open(storage.Options{FS: disk, MemTableSize: 64 << 10})
	if err == nil {
		err = work(store, steps, &w)
		if closeErr := store.Close(); err == nil {
			err = closeErr
		}
	}
	died := seen.Load() >= at
	if died != errors.Is(err, syscall.EIO) || died && !strings.Contains(err.Error(), " /") {
		t.Fatalf("mutation %d, died %v: %v", at, died, err)
	}
	checkWreck(t, w, steps)
	return died
}

func work(store *storage.Store, steps []step, w *wreck) error {
	log, err := Open(store, 0)
	if err != nil {
		return err
	}
	for i, s := range steps {
		w.begun++
		if i == 0 {
			err = log.Bootstrap(s.ops[0].(Install).ConfState)
		} else {
			err = play(log, s)
		}
		if err != nil {
			return err
		}
		w.acknowledged++
	}
	return nil
}
