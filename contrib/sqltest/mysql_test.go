//go:build unix

package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// A statement outside of a transaction begins one that no statement ends: it keeps the snapshot of its first
// read, and its writes are lost with the connection.
func (b *database) autocommitOff(t *testing.T) {
	off := *b
	off.db = b.open(t, "?autocommit=0")
	off.db.SetMaxOpenConns(1)
	guard := off.Guard(off.db)
	if err := errors.Join(b.write(t.Context(), "autocommit", 1), guard.Check("autocommit", 1)); err != nil {
		t.Fatal(err)
	}
	if err := b.write(t.Context(), "autocommit", 2); err != nil { // another process
		t.Fatal(err)
	}
	refused(t, guard.Check("autocommit", 1), 1, 2)

	off.db.SetMaxIdleConns(-1)
	if err := errors.Join(off.write(t.Context(), "autocommit, first use", 1), guard.Check("autocommit, first check", 1)); err != nil {
		t.Error(err)
	}
}

// A deadlock rolls back the transaction, with the lock of the row, and what f executes after that is written
// at once. A function that retries the statement only must not be told that all of it is written.
func (b *database) deadlockInF(t *testing.T) {
	b.exec(t, "CREATE TABLE deadlock (id INTEGER PRIMARY KEY, value INTEGER)")
	b.exec(t, "INSERT INTO deadlock VALUES (1, 0), (2, 0)")
	ctx := conclave.ContextWithFence(t.Context(), 1)
	err := b.Tx(ctx, b.db, "deadlock", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE deadlock SET value = 1 WHERE id = 1"); err != nil {
			return err
		}
		other, crossed := b.crossing(t)
		_, victim := tx.ExecContext(ctx, "UPDATE deadlock SET value = 1 WHERE id = 2")
		if err := errors.Join(<-crossed, other.Rollback()); err != nil || victim == nil {
			t.Errorf("no deadlock in which the holder is the victim: %v, %v", victim, err)
		}
		_, err := tx.ExecContext(ctx, "UPDATE deadlock SET value = 1 WHERE id = 2") // retried
		return err
	})
	if err == nil {
		t.Error("Tx reports no error, and the first statement's write is lost")
	}
	b.exec(t, "DROP TABLE deadlock")
}

// crossing returns a transaction that has written more than that of the holder, so that a deadlock spares it,
// and that waits for the holder's row.
func (b *database) crossing(t *testing.T) (*sql.Tx, <-chan error) {
	tx, err := b.db.BeginTx(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "UPDATE deadlock SET value = 2 WHERE id = 2"); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO deadlock VALUES (?, 0)", 100+i); err != nil {
			t.Fatal(err)
		}
	}
	crossed := make(chan error, 1)
	go func() {
		_, err := tx.ExecContext(t.Context(), "UPDATE deadlock SET value = 2 WHERE id = 1")
		crossed <- err
	}()
	for waiting := 0; waiting == 0; {
		time.Sleep(time.Second / 5) // InnoDB renews the table only if it was not read for a tenth of a second
		query := "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
		if err := b.db.QueryRowContext(t.Context(), query).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	return tx, crossed
}

func (b *database) implicitCommitInF(t *testing.T) {
	ctx := conclave.ContextWithFence(t.Context(), 1)
	err := b.Tx(ctx, b.db, "implicit commit", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE committed (id INTEGER)")
		return err
	})
	if err == nil {
		t.Error("Tx does not report that a statement has ended its transaction")
	}
	b.exec(t, "DROP TABLE committed")
}

// What f does with savepoints of its own is not in the way.
func (b *database) savepointsInF(t *testing.T) {
	ctx := conclave.ContextWithFence(t.Context(), 1)
	err := b.Tx(ctx, b.db, "savepoints", func(tx *sql.Tx) error {
		var all error
		for _, statement := range []string{"SAVEPOINT a", "SAVEPOINT b", "ROLLBACK TO SAVEPOINT a", "SAVEPOINT c", "RELEASE SAVEPOINT c"} {
			_, err := tx.ExecContext(ctx, statement)
			all = errors.Join(all, err)
		}
		return all
	})
	if err != nil {
		t.Error(err)
	}
}
