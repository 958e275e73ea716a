//go:build unix

package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// read runs an empty transaction of a reader with the fence.
func (b *database) read(ctx context.Context, lock string, f conclave.Fence) error {
	return b.ReadTx(conclave.ContextWithFence(ctx, f), b.db, lock, func(*sql.Tx) error { return nil })
}

// Readers that share a fence are in their transactions at the same time. A reader raises the fence: no earlier writer
// writes afterwards, and none reads.
func (b *database) readers(t *testing.T) {
	if err := b.read(t.Context(), "readers", 5); err != nil { // raises the fence
		t.Fatal(err)
	}
	const together = 4
	var inside sync.WaitGroup
	inside.Add(together)
	results := make(chan error, together)
	for range together {
		go func() {
			results <- b.ReadTx(conclave.ContextWithFence(t.Context(), 5), b.db, "readers", func(*sql.Tx) error {
				inside.Done()
				inside.Wait() // for all
				return nil
			})
		}()
	}
	for range together {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	if largest, err := b.Largest(t.Context(), b.db, "readers"); err != nil || largest != 5 {
		t.Errorf("largest is %v, %v, want 5", largest, err)
	}
	refused(t, b.write(t.Context(), "readers", 4), 4, 5)
	refused(t, b.read(t.Context(), "readers", 4), 4, 5)
	if err := b.write(t.Context(), "readers", 6); err != nil {
		t.Error(err)
	}
	refused(t, b.read(t.Context(), "readers", 5), 5, 6)
	for range 2 {
		if err := b.read(t.Context(), "readers", 7); err != nil {
			t.Error(err)
		}
	}
	if err := b.ReadTx(t.Context(), b.db, "readers", func(*sql.Tx) error { t.Error("called"); return nil }); !errors.Is(err, fencing.ErrMissing) {
		t.Errorf("a context without a fence: %v", err)
	}
	mine := errors.New("mine")
	if err := b.ReadTx(conclave.ContextWithFence(t.Context(), 7), b.db, "readers", func(*sql.Tx) error { return mine }); err != mine { //nolint:errorlint // as it is
		t.Errorf("got %v, want the error of the function as it is", err)
	}
}

// What a reader reads in one transaction does not change, though a later writer comes.
func (b *database) readerBeforeWriter(t *testing.T) {
	b.exec(t, "CREATE TABLE resource (value VARCHAR(20))")
	defer b.exec(t, "DROP TABLE resource")
	b.exec(t, "INSERT INTO resource VALUES ('before')")
	if err := b.read(t.Context(), "order of modes", 1); err != nil { // raises the fence
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	value := func(tx *sql.Tx) (v string) {
		if err := tx.QueryRowContext(t.Context(), "SELECT value FROM resource").Scan(&v); err != nil {
			t.Error(err)
		}
		return v
	}
	err := b.ReadTx(conclave.ContextWithFence(t.Context(), 1), b.db, "order of modes", func(tx *sql.Tx) error {
		if v := value(tx); v != "before" {
			t.Errorf("got %q", v)
		}
		go func() { wrote <- b.set(conclave.ContextWithFence(t.Context(), 2), "order of modes", "after") }()
		select {
		case err := <-wrote: // it need not wait where the reader has a snapshot
			wrote <- err
		case <-time.After(time.Second / 4):
		}
		if v := value(tx); v != "before" {
			t.Errorf("%q was written beside a reader", v)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if v := b.resource(t); v != "after" {
		t.Errorf("the resource has %q", v)
	}
	refused(t, b.read(t.Context(), "order of modes", 1), 1, 2)
}
