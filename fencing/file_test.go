package fencing_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

func holding(t *testing.T, f conclave.Fence) context.Context {
	return conclave.ContextWithFence(t.Context(), f)
}

func done() error { return nil }

// A guard that is made again, as after a restart, refuses what the former one would have refused.
func TestFile_RefusesEarlierHolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fences")
	g := fencing.File{Dir: dir}
	for _, lock := range []string{"invoices", "Invoices", strings.Repeat("x", 512), "../..", "a/b\n"} {
		if err := g.Do(holding(t, 7), lock, done); err != nil {
			t.Fatal(err)
		}
		again := fencing.File{Dir: dir}
		if err := again.Do(holding(t, 7), lock, done); err != nil {
			t.Errorf("%q: the same fence: %v", lock, err)
		}
		called := false
		err := again.Do(holding(t, 6), lock, func() error { called = true; return nil })
		var stale *conclave.StaleFenceError
		if !errors.As(err, &stale) || stale.Presented != 6 || stale.Largest != 7 || called {
			t.Errorf("%q: a smaller fence: %v, called %v", lock, err, called)
		}
		if err := again.Check(lock, 6); !errors.Is(err, conclave.ErrStaleFence) {
			t.Errorf("%q: a smaller fence: %v", lock, err)
		}
		if err := again.Check(lock, 1<<48|1); err != nil {
			t.Errorf("%q: a fence of the next epoch: %v", lock, err)
		}
		if err := g.Do(holding(t, 8), lock, done); !errors.Is(err, conclave.ErrStaleFence) {
			t.Errorf("%q: a fence of the epoch before: %v", lock, err)
		}
	}
}

func TestFile_Refusals(t *testing.T) {
	g := fencing.File{Dir: t.TempDir()}
	mine := errors.New("mine")
	if err := g.Do(holding(t, 1), "x", func() error { return mine }); err != mine { //nolint:errorlint // as it is
		t.Error(err)
	}
	if err := g.Do(t.Context(), "x", done); !errors.Is(err, fencing.ErrMissing) {
		t.Error(err)
	}
	if err := g.Check("x", 0); !errors.Is(err, fencing.ErrMissing) {
		t.Error(err)
	}
	for _, name := range []string{"", "a\x00", strings.Repeat("x", 513)} {
		if err := g.Do(holding(t, 1), name, done); !errors.Is(err, conclave.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := (fencing.File{Dir: filepath.Join(t.TempDir(), "no", "parent")}).Check("x", 1); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A later holder waits for the one that writes, or for the end of its context.
func TestFile_OneHolderAtATime(t *testing.T) {
	g := fencing.File{Dir: t.TempDir()}
	inside, leave := make(chan struct{}), make(chan struct{})
	var holders sync.WaitGroup
	holders.Go(func() {
		if err := g.Do(holding(t, 1), "x", func() error { close(inside); <-leave; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-inside
	if err := g.Check("y", 1); err != nil {
		t.Errorf("another lock: %v", err)
	}
	before := runtime.NumGoroutine()
	for range 100 { // callers that give up leave nothing behind while the holder is paused
		ctx, cancel := context.WithTimeout(holding(t, 2), time.Millisecond)
		err := g.Do(ctx, "x", func() error { t.Error("two holders"); return nil })
		if cancel(); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	if now := runtime.NumGoroutine(); now >= before+50 { // the runtime has some of its own for a moment
		t.Errorf("%d goroutines, and %d before", now, before)
	}
	close(leave)
	holders.Wait()

	var writing, written atomic.Int32
	for i := range 8 {
		holders.Go(func() {
			err := g.Do(holding(t, conclave.Fence(i+3)), "x", func() error {
				if writing.Add(1) != 1 {
					t.Error("two holders")
				}
				written.Add(1)
				writing.Add(-1)
				return nil
			})
			if err != nil && !errors.Is(err, conclave.ErrStaleFence) {
				t.Error(err)
			}
		})
	}
	holders.Wait()
	if err := g.Check("x", 10); err != nil || written.Load() == 0 {
		t.Error(err, written.Load())
	}
}

// An earlier holder that has not noticed its loss writes again and again. It is refused as soon as a later one waits.
func TestFile_EarlierHolderWritesInALoop(t *testing.T) {
	g := fencing.File{Dir: filepath.Join(t.TempDir(), "fences") + string(filepath.Separator)}
	begun, ended := make(chan struct{}), make(chan error, 1)
	var writes atomic.Int32
	go func() {
		for {
			err := g.Do(holding(t, 1), "x", func() error {
				if writes.Add(1) == 1 {
					close(begun)
				}
				return nil
			})
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	<-begun
	if err := g.Check("x", 2); err != nil {
		t.Error(err)
	}
	before := writes.Load()
	if err := <-ended; !errors.Is(err, conclave.ErrStaleFence) {
		t.Error(err)
	}
	if after := writes.Load(); after > before+1 { // one may have been under way
		t.Errorf("%d writes after a larger fence was kept", after-before)
	}
	if err := g.Do(holding(t, 2), "x", done); err != nil {
		t.Error(err)
	}
}

// What a crash leaves beside the file does not count, and what is not a fence is not taken for one.
func TestFile_Damaged(t *testing.T) {
	dir := t.TempDir()
	g := fencing.File{Dir: dir}
	if err := g.Check("x", 7); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, strings.Repeat("[0-9a-f]", 64)))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0]+".tmp", []byte("conclave fence 1\n99"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.Check("x", 6); !errors.Is(err, conclave.ErrStaleFence) {
		t.Error(err)
	}
	if err := g.Check("x", 8); err != nil {
		t.Error(err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil || string(whole) != "conclave fence 1\n8\n\"x\"\n" {
		t.Fatalf("%q, %v", whole, err)
	}
	for _, content := range []string{"", string(whole[:17]), string(whole) + "\n", "conclave fence 2\n8\n\"x\"\n", "conclave fence 1\n0\n\"x\"\n", "conclave fence 1\n8\n\"y\"\n"} {
		if err := os.WriteFile(files[0], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := g.Check("x", 9); !errors.Is(err, conclave.ErrCorrupt) {
			t.Errorf("%q: %v", content, err)
		}
	}
}
