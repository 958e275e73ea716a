package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/conclave-go/conclave"
)

// ReadTx is [SQL.Tx] for those that hold the lock shared ([conclave.RWLock]) and only read what it
// protects: their transactions run at the same time, as they have one fence. Those of Tx wait for them, and they for
// those of Tx. An earlier writer writes nothing after ReadTx has called f, nor does a later one while f runs; on SQLite with a
// write-ahead log it may, and f does not see it.
//
// The first of the holders that share a fence writes the row, in a transaction of its own; others that begin at
// that moment may wait for it, and for the transactions that have begun since. The errors are those of
// Tx. With BEGIN IMMEDIATE as the default of a connection to SQLite readers run one after the other.
func (s SQL) ReadTx(ctx context.Context, db *sql.DB, lock string, f func(tx *sql.Tx) error) error {
	fence, err := FenceFromContext(ctx, lock)
	if err != nil {
		return fault(lock, err)
	}
	tx, err := s.beginShared(ctx, db, Token{lock, fence})
	if err != nil {
		return fault(lock, err)
	}
	return s.finish(ctx, tx, lock, f)
}

// beginShared returns a transaction that shares the lock's row with others that read, after the token was accepted.
func (s SQL) beginShared(ctx context.Context, db *sql.DB, t Token) (*sql.Tx, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	q, err := s.statements()
	if err != nil {
		return nil, err
	}
	tx, err := shared(ctx, db, q, t)
	if !errors.Is(err, errSmaller) {
		return tx, err
	}
	// Raised here, the row would be held alone until the end of the transaction.
	if err := s.tx(ctx, db, t, func(*sql.Tx) error { return nil }); err != nil {
		return nil, err
	}
	tx, err = shared(ctx, db, q, t)
	if errors.Is(err, errSmaller) {
		err = fmt.Errorf("%w: the row of the lock has been changed by another program", conclave.ErrCorrupt)
	}
	return tx, err
}

// errSmaller: the table has a smaller fence, or none.
var errSmaller = errors.New("the table has a smaller fence")

func shared(ctx context.Context, db *sql.DB, q statements, t Token) (*sql.Tx, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err := q.share(ctx, tx, t); err != nil {
		_ = tx.Rollback() // the first error is the cause
		return nil, err
	}
	return tx, nil
}

// share locks the row of t.Lock beside others that do, until the end of the transaction. It must be the first
// statement, as that of raise.
func (q statements) share(ctx context.Context, tx *sql.Tx, t Token) error {
	largest, err := scan(tx.QueryRowContext(ctx, q.shared, []byte(t.Lock)))
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && largest < t.Fence:
		return errSmaller
	case err != nil:
		return err
	case t.Fence < largest:
		return &conclave.StaleFenceError{Presented: t.Fence, Largest: largest}
	case q.mark != "":
		_, err = tx.ExecContext(ctx, q.mark)
	}
	return err
}
