//go:build unix

package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

func TestPostgreSQL(t *testing.T) {
	b := postgresql(t)
	suite(t, b)
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			strict := *b
			strict.db = b.open(t, " default_transaction_isolation='"+level+"'")
			t.Run("writers of many holders", strict.writersOfManyHolders)
		})
	}
}

func TestMariaDB(t *testing.T) {
	b := mariadb(t)
	suite(t, b)
	// Default since MariaDB 11.6.2.
	t.Run("innodb_snapshot_isolation", func(t *testing.T) {
		strict := *b
		strict.db = b.open(t, "?innodb_snapshot_isolation=ON")
		t.Run("writers of many holders", strict.writersOfManyHolders)
		t.Run("first use of many locks", strict.firstUse)
	})
	t.Run("interpolated parameters", func(t *testing.T) {
		strict := *b
		strict.db = b.open(t, "?interpolateParams=true")
		t.Run("names", strict.names)
	})
	t.Run("autocommit off", b.autocommitOff)
	t.Run("deadlock in the function", b.deadlockInF)
	t.Run("implicit commit in the function", b.implicitCommitInF)
	t.Run("savepoints in the function", b.savepointsInF)
}

func TestSQLite(t *testing.T) {
	b := sqlite(t)
	suite(t, b)
	t.Run("write-ahead log", func(t *testing.T) {
		wal := *sqlite(t)
		wal.db = wal.open(t, "&_pragma=journal_mode(wal)")
		suite(t, &wal)
	})
	t.Run("rollback in the function", b.rollbackInF)
	t.Run("immediate transactions", func(t *testing.T) {
		immediate := *b
		immediate.db = b.open(t, "&_txlock=immediate")
		t.Run("writers of many holders", immediate.writersOfManyHolders)
	})
}

func suite(t *testing.T, b *database) {
	b.create(t)
	b.create(t) // again, as at each start of a program
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"order of fences", b.order},
		{"names", b.names},
		{"table of another name", b.table},
		{"errors", b.errors},
		{"rollback", b.rollback},
		{"wait for another holder", b.waits},
		{"guard", b.guard},
		{"middleware", b.middleware},
		{"paused holder", b.pausedHolder},
		{"two holders", b.twoHolders},
		{"readers", b.readers},
		{"reader before a writer", b.readerBeforeWriter},
		{"writers of many holders", b.writersOfManyHolders},
		{"first use of many locks", b.firstUse},
	} {
		if !t.Run(test.name, test.run) {
			return // what follows would only repeat it
		}
	}
}

// write runs an empty transaction with the fence.
func (b *database) write(ctx context.Context, lock string, f conclave.Fence) error {
	return b.Tx(conclave.ContextWithFence(ctx, f), b.db, lock, func(*sql.Tx) error { return nil })
}

// refused fails the test unless the error is the refusal of the fence.
func refused(t *testing.T, err error, presented, largest conclave.Fence) {
	t.Helper()
	var stale *conclave.StaleFenceError
	if !errors.Is(err, conclave.ErrStaleFence) || !errors.As(err, &stale) {
		t.Errorf("fence %v after %v: got %v, want ErrStaleFence", presented, largest, err)
	} else if stale.Presented != presented || stale.Largest != largest {
		t.Errorf("got %v, want %v after %v", stale, presented, largest)
	}
}

// Fences of all sizes, also those that a signed column would take for negative, in their order.
func (b *database) order(t *testing.T) {
	ascending := []conclave.Fence{1, 2, 1<<31 - 1, 1 << 31, 1<<48 - 1, 1 << 48, 1<<48 | 1, 2 << 48, 1<<63 - 1, 1 << 63, 1<<63 | 1, math.MaxUint64}
	for i, f := range ascending {
		for _, again := range []string{"newer", "equal"} {
			if err := b.write(t.Context(), "order", f); err != nil {
				t.Fatalf("%s %v: %v", again, f, err)
			}
		}
		for _, earlier := range ascending[:i] {
			refused(t, b.write(t.Context(), "order", earlier), earlier, f)
		}
		if largest, err := b.Largest(t.Context(), b.db, "order"); err != nil || largest != f {
			t.Fatalf("largest is %v, %v, want %v", largest, err, f)
		}
	}
}

func (b *database) errors(t *testing.T) {
	ctx, none := t.Context(), func(*sql.Tx) error { t.Error("called"); return nil }
	if err := b.Tx(ctx, b.db, "x", none); !errors.Is(err, fencing.ErrMissing) {
		t.Errorf("a context without a fence: %v", err)
	}
	bound := fencing.ContextWithToken(ctx, fencing.Token{Lock: "y", Fence: 1})
	if err := b.Tx(bound, b.db, "x", none); !errors.Is(err, fencing.ErrMissing) {
		t.Errorf("the fence of another lock: %v", err)
	}
	missing := b.SQL
	missing.Table = "no_such_table"
	if err := missing.Tx(conclave.ContextWithFence(ctx, 1), b.db, "x", none); err == nil || errors.Is(err, conclave.ErrStaleFence) {
		t.Errorf("a missing table: %v", err)
	}
	if largest, err := b.Largest(ctx, b.db, "never used"); largest != 0 || err != nil {
		t.Errorf("a lock that was never used: %v, %v", largest, err)
	}
}
