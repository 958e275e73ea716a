package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"
)

// The disk fails from each mutation in turn, while a database that has writes to replay
// opens, flushes and compacts, and the directory is deleted once the store has failed.
// Pebble shuts down behind that without a panic, which would end the host's process, and
// without leaving a goroutine.
func TestFailstop_DatabaseShutsDown(t *testing.T) {
	disk, step := unflushed(t), int64(1)
	if testing.Short() {
		step = 11
	}
	for at := int64(1); ; at += step {
		faults := &failFrom{at: at, err: syscall.EIO}
		clone := disk.CrashClone(allWritten())
		s, err := Open(Options{FS: errorfs.Wrap(clone, faults), MemTableSize: 64 << 10})
		if err == nil {
			_ = writeTables(s)
			s.Close()
		}
		if faults.seen.Load() < at {
			return // the work ended before the mutation
		}
		if err := clone.RemoveAll("/conclave"); err != nil {
			t.Fatal(err)
		}
		awaitNoGoroutines(t, "mutation", at)
	}
}

// The directory is deleted before some operation on the disk, while the database opens,
// flushes and compacts. The store fails; Pebble, which would panic with its mutex unlocked
// at a file that it cannot create, sees nothing of it.
func TestFailstop_DirectoryDeleted(t *testing.T) {
	disk, step := unflushed(t), int64(7)
	if testing.Short() {
		step = 37
	}
	for at := int64(1); ; at += step {
		clone := disk.CrashClone(allWritten())
		var operations atomic.Int64
		s, err := Open(Options{FS: errorfs.Wrap(clone, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if operations.Add(1) == at {
				_ = clone.RemoveAll("/conclave")
			}
			return nil
		})), MemTableSize: 64 << 10})
		if err == nil {
			_ = writeTables(s)
			s.Close()
		}
		if operations.Load() < at {
			return
		}
		awaitNoGoroutines(t, "operation", at)
	}
}

// compactionsFail holds up the tables of compactions until release, and then fails them.
type compactionsFail struct {
	vfs.FS
	release chan struct{}
}

func (f *compactionsFail) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == compactionCategory {
		<-f.release
		return nil, syscall.EIO
	}
	return f.FS.Create(name, category)
}

// A disk holds up a compaction while tables are written and flushed, more than Pebble's
// default lets a write pass, and then fails it.
func TestFailstop_DuringSlowCompaction(t *testing.T) {
	disk := &compactionsFail{vfs.NewMem(), make(chan struct{})}
	s := open(t, Options{FS: disk, MemTableSize: 64 << 10})
	written := make(chan error, 1)
	go func() {
		for range 4 {
			_ = writeTables(s)
		}
		written <- writeTables(s)
	}()
	select {
	case err := <-written:
		if got := s.db.Metrics().Levels[0].Sublevels; err != nil || got <= 12 {
			t.Errorf("%d sublevels, %v: no compaction was held up", got, err)
		}
	case <-time.After(5 * time.Minute):
		t.Error("a write waits for a compaction")
	}
	close(disk.release)
	<-s.Failed()
	if err := s.Close(); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	awaitNoGoroutines(t, "compactions", 0)
}

// awaitNoGoroutines blocks until what a failed store has left to end in the background has ended: goleak waits for less than half a second.
func awaitNoGoroutines(t *testing.T, what string, at int64) {
	t.Helper()
	err := goleak.Find()
	for late := time.Now().Add(5 * time.Minute); err != nil && time.Now().Before(late); {
		err = goleak.Find()
	}
	if err != nil {
		t.Fatalf("%s %d: %v", what, at, err)
	}
}

// unflushed returns a disk with tables, and with writes that only the WAL has.
func unflushed(t *testing.T) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewCrashableMem()
	s := open(t, Options{FS: disk, MemTableSize: 64 << 10})
	if err := writeTables(s); err != nil {
		t.Fatal(err)
	}
	clone := disk.CrashClone(allWritten())
	s.Close()
	return clone
}

func allWritten() vfs.CrashCloneCfg {
	return vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}
}

// writeTables fills tables that overlap, so that Pebble compacts them, and deletes ranges
// of them.
func writeTables(s *Store) error {
	for i := range 200 {
		err := s.Do(func(db *pebble.DB) error {
			if i%20 == 19 {
				if err := db.DeleteRange([]byte("000"), fmt.Appendf(nil, "%03d", i%37), pebble.NoSync); err != nil {
					return err
				}
			}
			return db.Set(fmt.Appendf(nil, "%03d", i%37), bytes.Repeat([]byte{byte(i)}, 9000), pebble.Sync)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// What Pebble writes after the failure it can read, and the disk has nothing of it. Of a
// table that the failure truncated, Pebble learns that it is not complete.
func TestFailstop_FilesAfterFailure(t *testing.T) {
	disk := vfs.NewMem()
	f := newFailstop()
	broken := &errorfs.Toggle{Injector: errorfs.ErrInjected}
	patient := &patientFS{errorfs.Wrap(disk, broken), newPatience(Options{FS: disk}.withDefaults(), f.failed)}
	files := newFailstopFS(patient, new(directoryLock), f)
	create := func(name string) vfs.File {
		t.Helper()
		file, err := files.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	table, log := create("000001.sst"), create("000002.log")
	f.fail(syscall.EIO)
	f.resume()
	if n, err := table.Write([]byte("x")); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("write to a table = %d, %v", n, err)
	}
	if n, err := log.Write([]byte("x")); n != 1 || err != nil {
		t.Errorf("write to a log = %d, %v", n, err)
	}
	if _, err := files.Create("000004.sst", compactionCategory); !errors.Is(err, syscall.EIO) {
		t.Errorf("a compaction goes on: %v", err)
	}
	later := create("000003.sst")
	if _, err := later.Write([]byte("content")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(later.Sync(), later.Close()); err != nil {
		t.Fatal(err)
	}
	file, err := files.Open("000003.sst")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got, err := io.ReadAll(file); err != nil || string(got) != "content" {
		t.Errorf("%q, %v", got, err)
	}
	if info, err := files.Stat("000003.sst"); err != nil || info.Size() != int64(len("content")) {
		t.Errorf("%v, %v", info, err)
	}
	broken.On()
	if names, err := files.List("/"); len(names) > 0 || err != nil {
		t.Errorf("List = %v, %v", names, err)
	}
	if dir, err := files.OpenDir("/"); err != nil {
		t.Error(err)
	} else if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		t.Error(err)
	}
	if names, err := disk.List("/"); err != nil || len(names) != 2 {
		t.Errorf("the disk has %v, %v", names, err)
	}
}
