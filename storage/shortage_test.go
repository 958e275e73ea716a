package storage

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// shortOf lets an operation, by its number among those that match, lack a resource a few
// times; at 0 all of them.
type shortOf struct {
	err     error
	at      int64
	times   int
	matches func(errorfs.Op) bool // nil: all

	mu     sync.Mutex // protects the fields below
	seen   int64
	failed int
	op     errorfs.Op
}

func (s *shortOf) MaybeError(op errorfs.Op) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.matches != nil && !s.matches(op) {
		return nil
	}
	repeated := s.failed > 0 && s.at > 0
	if !repeated {
		s.seen++
	}
	if s.failed >= s.times || s.at > 0 && s.seen != s.at || repeated && op != s.op {
		return nil
	}
	s.failed++
	s.op = op
	return s.err
}

func (s *shortOf) String() string { return "short of a resource" }

// The process lacks descriptors, or memory, at each operation of the file system in turn,
// while a store that has writes to replay opens, writes, flushes, compacts, reads and closes.
// It waits, everything succeeds, and nothing is lost.
func TestShortage_AtAnyOperation(t *testing.T) {
	opensOrReads := func(op errorfs.Op) bool {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpOpen, errorfs.OpOpenDir, errorfs.OpReuseForWrite, errorfs.OpList, errorfs.OpStat,
			errorfs.OpFileRead, errorfs.OpFileReadAt, errorfs.OpFileStat, errorfs.OpLock:
			return true
		}
		return false
	}
	for _, c := range []struct {
		err     error
		step    int64
		matches func(errorfs.Op) bool
	}{{syscall.EMFILE, 1, nil}, {syscall.ENFILE, 11, nil}, {syscall.EINTR, 7, nil}, {syscall.ENOMEM, 3, opensOrReads}} {
		t.Run(c.err.Error(), func(t *testing.T) {
			t.Parallel()
			disk, step := unflushed(t), c.step
			if testing.Short() {
				step *= 8 // the race detector sees as much in fewer
			}
			for at := int64(1); endure(t, disk, &shortOf{err: c.err, at: at, times: 2, matches: c.matches}); at += step {
			}
		})
	}
}

// endure returns false when the work ended before the operation.
func endure(t *testing.T, disk *vfs.MemFS, short *shortOf) bool {
	t.Helper()
	disk = disk.CrashClone(allWritten())
	s, err := Open(Options{FS: errorfs.Wrap(disk, short), MemTableSize: 64 << 10})
	if err != nil {
		t.Fatalf("operation %d, %v: %v", short.at, short.op, err)
	}
	defer s.Close()
	acknowledged, err := writeLoad(s)
	if err == nil {
		checkLoad(t, s, acknowledged)
		err = s.Do(func(db *pebble.DB) error { return db.Compact(t.Context(), []byte("0"), []byte("9"), false) })
	}
	if err != nil {
		t.Fatalf("operation %d, %v: %v", short.at, short.op, err)
	}
	// A shortage while it closes is a failure, with everything acknowledged on the disk.
	if err := s.Close(); err != nil && !errors.Is(err, short.err) {
		t.Fatalf("operation %d, %v: %v", short.at, short.op, err)
	}
	again, err := Open(Options{FS: disk})
	if err != nil {
		t.Fatalf("operation %d, %v: %v", short.at, short.op, err)
	}
	defer again.Close()
	checkLoad(t, again, acknowledged)
	return short.reached()
}

func (s *shortOf) reached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed > 0
}

// A store waits for as long as the shortage lasts, says so, and goes on when it ends.
func TestShortage_Reported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		short := &errorfs.Toggle{Injector: &shortOf{err: syscall.EMFILE, times: 1 << 30, matches: func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate }}}
		s := open(t, Options{FS: errorfs.Wrap(vfs.NewMem(), short), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		short.On()
		flushed := make(chan error, 1)
		go func() { flushed <- s.Do(func(db *pebble.DB) error { return flush(db) }) }()
		synctest.Wait()
		time.Sleep(time.Hour)
		waited, lack := s.Shortage()
		var where *fs.PathError
		if waited != time.Hour || !errors.Is(lack, syscall.EMFILE) || !errors.As(lack, &where) || where.Op != "create" || where.Path == "" {
			t.Errorf("%v, %v", waited, lack)
		}
		short.Off()
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		if waited, lack := s.Shortage(); waited != 0 || lack != nil {
			t.Errorf("%v, %v", waited, lack)
		}
		s.Close()
		if n := strings.Count(log.String(), "too many open files"); n != 1 || !strings.Contains(log.String(), "waits no longer") {
			t.Errorf("logged %d times: %s", n, log.String())
		}
	})
}

func flush(db *pebble.DB) error {
	if err := db.Set([]byte("k"), []byte("v"), pebble.Sync); err != nil {
		return err
	}
	return db.Flush()
}

// What ends the waiting: the store's Close, its owner's decision, or another failure. The
// shortage is then the failure of the store. The directory opens again with everything.
func TestShortage_EndOfWaiting(t *testing.T) {
	for name, end := range map[string]func(s *Store, giveUp chan struct{}){
		"close":           func(s *Store, _ chan struct{}) {},
		"give up":         func(_ *Store, giveUp chan struct{}) { close(giveUp) },
		"another failure": func(s *Store, _ chan struct{}) { s.failstop.fail(syscall.EIO) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := vfs.NewMem()
				short := &errorfs.Toggle{Injector: &shortOf{err: syscall.EMFILE, times: 1 << 30}}
				giveUp := make(chan struct{})
				s := open(t, Options{FS: errorfs.Wrap(disk, short), GiveUp: giveUp})
				put(t, s, "a", "acknowledged")
				short.On()
				done := make(chan error, 1)
				go func() { done <- s.Do(flush) }()
				synctest.Wait()
				end(s, giveUp)
				closing := s.Close()
				err := <-done
				if name == "another failure" {
					if !errors.Is(err, syscall.EIO) || !errors.Is(closing, syscall.EIO) {
						t.Errorf("%v, %v", err, closing)
					}
				} else if !errors.Is(err, syscall.EMFILE) || !errors.Is(closing, syscall.EMFILE) {
					t.Errorf("%v, %v", err, closing)
				}
				if got := get(t, open(t, Options{FS: disk}), "a"); got != "acknowledged" {
					t.Errorf("a = %q", got)
				}
			})
		})
	}
}

// An owner that does not want to wait, such as a tool, gets the shortage at once.
func TestShortage_OpenGivesUp(t *testing.T) {
	giveUp := make(chan struct{})
	close(giveUp)
	for at := int64(1); ; at++ {
		short := &shortOf{err: syscall.EMFILE, at: at, times: 1 << 30}
		s, err := Open(Options{FS: errorfs.Wrap(vfs.NewMem(), short), GiveUp: giveUp})
		if err == nil {
			s.Close()
			return
		}
		if !errors.Is(err, syscall.EMFILE) || errors.Is(err, ErrCorrupt) {
			t.Errorf("operation %d: %v", at, err)
		}
	}
}

// halfReuse renames the file to be reused, and then lacks a descriptor to open it.
type halfReuse struct {
	vfs.FS
	failed bool
}

func (f *halfReuse) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if !f.failed {
		f.failed = true
		if err := f.Rename(oldname, newname); err != nil {
			return nil, err
		}
		return nil, syscall.EMFILE
	}
	return f.FS.ReuseForWrite(oldname, newname, category)
}

func TestShortage_HalfOfReuse(t *testing.T) {
	disk := &halfReuse{FS: vfs.NewMem()}
	s := open(t, Options{FS: disk, MemTableSize: 64 << 10})
	acknowledged, err := writeLoad(s)
	if err != nil || !disk.failed {
		t.Fatalf("%v; reused: %v", err, disk.failed)
	}
	s.Close()
	checkLoad(t, open(t, Options{FS: disk}), acknowledged)
}

// shortWrite writes half of what it gets, and is then interrupted.
type shortWrite struct{ vfs.File }

func (f shortWrite) Write(p []byte) (int, error) {
	if len(p) < 2 {
		return f.File.Write(p)
	}
	n, err := f.File.Write(p[:len(p)/2])
	return n, errors.Join(err, syscall.EINTR)
}

// The rest of a write that was interrupted follows, once.
func TestShortage_PartOfWrite(t *testing.T) {
	disk := vfs.NewMem()
	file, err := disk.Create("/f", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	p := newPatience(Options{FS: disk}.withDefaults(), nil)
	f := &patientFile{File: shortWrite{file}, name: "/f", patience: p}
	if n, err := f.Write([]byte("0123456789")); n != 10 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	got := make([]byte, 20)
	if n, _ := file.ReadAt(got, 0); string(got[:n]) != "0123456789" {
		t.Errorf("%q", got[:n])
	}
}
