package storage

import (
	"errors"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// The disk fails from each mutation in turn, from the creation of the directory
// to its closing. No call hangs, nothing more is acknowledged, the error names
// what failed, and on the repaired disk the same process opens the directory at
// once with all acknowledged writes.
func TestFailstop_DiskFailsFromAnyMutation(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		inline bool
	}{
		"EIO":         {err: syscall.EIO},
		"ENOSPC":      {err: syscall.ENOSPC},
		"EIO, inline": {err: syscall.EIO, inline: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := int64(1); failDiskFrom(t, at, c.err, c.inline); at++ {
			}
		})
	}
}

// failDiskFrom returns false when the work ended before the mutation at.
func failDiskFrom(t *testing.T, at int64, fault error, inline bool) bool {
	t.Helper()
	healthy := vfs.NewMem()
	faults := &failFrom{at: at, err: fault}
	options := Options{FS: errorfs.Wrap(healthy, faults), MemTableSize: 64 << 10, Inline: inline}
	s, err := Open(options)
	acknowledged := 0
	if err == nil {
		if acknowledged, err = writeLoad(s); err != nil {
			if next := s.Do(func(*pebble.DB) error { return nil }); next != err {
				t.Errorf("mutation %d: work after the failure: %v", at, next)
			}
			if s.Err() != err {
				t.Errorf("mutation %d: Err = %v, and the work failed with %v", at, s.Err(), err)
			}
		}
		if closeErr := s.Close(); err == nil {
			err = closeErr
		}
	}
	failed := faults.seen.Load() >= at
	if failed != (err != nil) {
		t.Fatalf("mutation %d: disk failed: %v, error: %v", at, failed, err)
	}
	if failed && (!errors.Is(err, fault) || !strings.Contains(err.Error(), " /")) {
		t.Errorf("mutation %d: error without cause or file: %v", at, err)
	}
	checkLoad(t, open(t, Options{FS: healthy}), acknowledged)
	return failed
}

// An operator needs to know which operation failed on which file.
func TestFailstop_ErrorNamesOperationAndFile(t *testing.T) {
	for _, c := range []struct {
		kind errorfs.OpKind
		file string // part of the path
		want string
	}{
		{errorfs.OpFileSync, ".log", "sync"},
		{errorfs.OpFileSyncData, ".log", "sync"},
		{errorfs.OpFileWrite, ".log", "write"},
		{errorfs.OpCreate, ".log", "create"},
		{errorfs.OpReuseForWrite, ".log", "reuse"},
		{errorfs.OpCreate, ".sst", "create"},
		{errorfs.OpFileWrite, ".sst", "write"},
		{errorfs.OpFileSync, ".sst", "sync"},
		{errorfs.OpRemove, ".sst", "remove"},
		{errorfs.OpFileWrite, "MANIFEST", "write"},
		{errorfs.OpFileSync, "MANIFEST", "sync"},
	} {
		t.Run(c.want+" "+c.file, func(t *testing.T) {
			var path atomic.Pointer[string]
			faults := errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind != c.kind || !strings.Contains(op.Path, c.file) {
					return nil
				}
				path.CompareAndSwap(nil, &op.Path)
				return syscall.EIO
			})
			armed := &errorfs.Toggle{Injector: faults}
			dir := t.TempDir()
			s := open(t, Options{Dir: dir, FS: errorfs.Wrap(vfs.Default, armed), MemTableSize: 64 << 10})
			armed.On()
			acknowledged, err := writeLoad(s)
			if err == nil {
				err = s.Do(func(db *pebble.DB) error { return db.Compact(t.Context(), []byte("0"), []byte("9"), false) })
			}
			if err == nil {
				err = s.Close() // waits for work in the background
			}
			if path.Load() == nil {
				t.Fatal("the load does not reach this operation")
			}
			want := &fs.PathError{Op: c.want, Path: *path.Load(), Err: syscall.EIO}
			var got *fs.PathError
			if !errors.As(err, &got) || got.Error() != want.Error() {
				t.Errorf("%v, want %v", err, want)
			}
			s.Close()
			checkLoad(t, open(t, Options{Dir: dir}), acknowledged)
		})
	}
}

// Writes of a failed store are discarded, also while a new store is at work in
// the same directory.
func TestFailstop_FailedStoreNeverWritesToReopenedFiles(t *testing.T) {
	healthy := vfs.NewMem()
	armed := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) && strings.HasSuffix(op.Path, ".log") {
			return syscall.EIO
		}
		return nil
	})}
	failed := open(t, Options{FS: errorfs.Wrap(healthy, armed)})
	put(t, failed, "a", "acknowledged")
	armed.On()
	entered := make(chan struct{})
	failed.Go(func(db *pebble.DB) error {
		close(entered)
		_ = db.Set([]byte("b"), []byte("unacknowledged"), pebble.Sync)
		_ = db.Set([]byte("a"), []byte("written after the failure"), pebble.Sync)
		return db.Flush()
	}, func(error) { t.Error("acknowledged after the failure") })
	<-entered
	<-failed.Failed()
	armed.Off()
	failed.Close()
	<-failed.stopped // Pebble has run all of it, on discarded writes
	s := open(t, Options{FS: healthy})
	if got := get(t, s, "a"); got != "acknowledged" {
		t.Errorf("a = %q", got)
	}
}

// A failure on any goroutine of the database invalidates the result of the task
// under way, also a success.
func TestFailstop_NoResultReportedAfterFailure(t *testing.T) {
	s := open(t, Options{Inline: true})
	failure := errors.New("disk failed")
	s.Go(func(*pebble.DB) error {
		s.failstop.fail(failure)
		return nil
	}, func(err error) { t.Errorf("reported as done: %v", err) })
	if !errors.Is(s.Err(), failure) {
		t.Fatal(s.Err())
	}
}
