package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mutates reports whether an operation changes a file or a directory.
func mutates(kind errorfs.OpKind) bool {
	return kind.ReadOrWrite() == errorfs.OpIsWrite && kind != errorfs.OpLock
}

// dyingDisk fails from the mutation with number at on, as long as it is not 0.
type dyingDisk struct {
	at   int64
	err  error
	seen atomic.Int64
}

func (d *dyingDisk) MaybeError(op errorfs.Op) error {
	if !mutates(op.Kind) {
		return nil
	}
	if n := d.seen.Add(1); d.at == 0 || n < d.at {
		return nil
	}
	return d.err
}

func (d *dyingDisk) String() string { return "dying disk" }

// churn writes, with flushes and compactions under way, until the store fails
// or it is done, and returns how many writes were acknowledged.
func churn(s *Store) (acknowledged int, err error) {
	const writes = 60
	for i := range writes {
		value := bytes.Repeat([]byte{byte(i)}, 3000)
		err := s.Do(func(db *pebble.DB) error {
			if i%8 == 7 {
				if _, err := db.AsyncFlush(); err != nil {
					return err
				}
			}
			return db.Set(fmt.Appendf(nil, "%06d", i), value, pebble.Sync)
		})
		if err != nil {
			return i, err
		}
	}
	return writes, nil
}

// intact checks that every acknowledged write of churn is there.
func intact(t *testing.T, s *Store, acknowledged int) {
	t.Helper()
	for i := range acknowledged {
		if want := strings.Repeat(string(rune(i)), 3000); get(t, s, fmt.Sprintf("%06d", i)) != want {
			t.Errorf("write %d of %d acknowledged ones is lost", i, acknowledged)
		}
	}
}

// A disk dies at each mutation in turn, from the creation of the directory to
// its closing. Nobody hangs, nothing more is acknowledged, the error says what
// failed, and the same directory, healed, opens at once in the same process
// with everything that was acknowledged.
func TestADiskThatDiesAnywhere(t *testing.T) {
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
			for at := int64(1); dieAt(t, at, c.err, c.inline); at++ {
			}
		})
	}
}

// dieAt returns false when the disk has outlived the work.
func dieAt(t *testing.T, at int64, fault error, inline bool) bool {
	t.Helper()
	healthy := vfs.NewMem()
	disk := &dyingDisk{at: at, err: fault}
	options := Options{FS: errorfs.Wrap(healthy, disk), MemTableSize: 64 << 10, Inline: inline}
	s, err := Open(options)
	acknowledged := 0
	if err == nil {
		if acknowledged, err = churn(s); err != nil {
			if again := s.Do(func(*pebble.DB) error { return nil }); again != err {
				t.Errorf("mutation %d: work after the failure: %v", at, again)
			}
			if s.Err() != err {
				t.Errorf("mutation %d: Err is %v, and the work failed with %v", at, s.Err(), err)
			}
		}
		if closeErr := s.Close(); err == nil {
			err = closeErr
		}
	}
	died := disk.seen.Load() >= at
	if died != (err != nil) {
		t.Fatalf("mutation %d: the disk died: %v, the error is %v", at, died, err)
	}
	if died && (!errors.Is(err, fault) || !strings.Contains(err.Error(), " /")) {
		t.Errorf("mutation %d: the error does not say what failed: %v", at, err)
	}
	intact(t, open(t, Options{FS: healthy}), acknowledged)
	return died
}

// Which operation on which file has failed is what the operator has to know.
func TestTheErrorNamesOperationAndFile(t *testing.T) {
	for _, c := range []struct {
		kind errorfs.OpKind
		file string // the end of the path
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
			acknowledged, err := churn(s)
			if err == nil {
				err = s.Do(func(db *pebble.DB) error { return db.Compact(t.Context(), []byte("0"), []byte("9"), false) })
			}
			if err == nil {
				err = s.Close() // and with it what goes on in the background
			}
			if path.Load() == nil {
				t.Fatal("the work does not do that any more")
			}
			want := &fs.PathError{Op: c.want, Path: *path.Load(), Err: syscall.EIO}
			var got *fs.PathError
			if !errors.As(err, &got) || got.Error() != want.Error() {
				t.Errorf("%v, want %v", err, want)
			}
			s.Close()
			intact(t, open(t, Options{Dir: dir}), acknowledged)
		})
	}
}

// What a failed store still does goes nowhere, also while a fresh one is
// already at work in the same directory.
func TestARemainNeverTouchesTheFilesOfItsSuccessor(t *testing.T) {
	healthy := vfs.NewMem()
	armed := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) && strings.HasSuffix(op.Path, ".log") {
			return syscall.EIO
		}
		return nil
	})}
	broken := open(t, Options{FS: errorfs.Wrap(healthy, armed)})
	put(t, broken, "a", "old")
	armed.On()
	entered := make(chan struct{})
	broken.Go(func(db *pebble.DB) error {
		close(entered)
		_ = db.Set([]byte("b"), []byte("never acknowledged"), pebble.Sync)
		_ = db.Set([]byte("a"), []byte("from the grave"), pebble.Sync)
		return db.Flush()
	}, func(error) { t.Error("acknowledged after the failure") })
	<-entered
	<-broken.Failed()
	armed.Off()
	broken.Close()
	<-broken.stopped // Pebble has carried all of it out, on nothing
	s := open(t, Options{FS: healthy})
	if got := get(t, s, "a"); got != "old" {
		t.Errorf("a = %q", got)
	}
}

// A panic in the work is a failure of the store, not of the process.
func TestAPanicFailsTheStore(t *testing.T) {
	s := open(t, Options{})
	err := s.Do(func(*pebble.DB) error { panic("boom") })
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("%v", err)
	}
	s.Close()
}

// What lies beside the database is closed with it, also after a failure.
func TestOnClose(t *testing.T) {
	var order []string
	s := open(t, Options{})
	s.Go(func(*pebble.DB) error { order = append(order, "work"); return nil }, func(error) {})
	s.OnClose(func() error { order = append(order, "close"); return errors.New("told") })
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "told") {
		t.Errorf("Close = %v", err)
	}
	if !slices.Equal(order, []string{"work", "close"}) {
		t.Errorf("order %v", order)
	}
}
