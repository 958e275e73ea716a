package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/conclave-go/conclave"
)

// SQL is a guard in the user's own database. A table has the largest fence of each lock, and
// [SQL.Tx] compares and raises it in the transaction that writes, so that no write of an earlier
// holder commits after one of a later holder. It may be used concurrently.
//
// The table is created with what [Schema] returns. Its rows are never removed. Remove
// one only together with what the lock protects: it is what refuses the lock's earlier holders.
//
// All holders must write to the same server. A replica that lags behind accepts earlier holders, and a
// cluster that takes writes at several servers (Galera, Group Replication with several primaries) has
// no row lock that holds at all of them.
type SQL struct {
	Dialect Dialect
	// Table is the name of the table: lower-case letters, digits and underscores, optionally
	// preceded by a schema (in MySQL a database) and a dot. Default: "conclave_fences".
	Table string
}

// Tx calls f with a transaction in which no smaller fence for the lock has been accepted, and
// commits it if f returns nil. The fence is that of [FenceFromContext]. What f writes with the
// transaction is written if no later holder has come before, and not at all otherwise.
// Transactions for the same lock wait for each other from the beginning on, until ctx is done or the
// database's own timeout has passed. All of it has the isolation that is the default of the connection.
//
// It returns an error that wraps a *conclave.StaleFenceError, without a call of f, if a larger
// fence has been accepted; ErrMissing if ctx carries no fence for the lock, conclave.ErrInvalid for an
// invalid name or table, and the database's errors. An error of f is returned as it is, and nothing
// is written then. f is called at most once, and must neither commit nor roll back. After an error
// of the commit itself the outcome is unknown, as with database/sql.
//
// On MySQL and MariaDB f must not execute statements that commit implicitly, such as CREATE TABLE, and
// must return after a deadlock rather than retry the statement: both end the transaction, and with it
// the protection. Tx then returns an error, but what f has executed since is written, also if a later
// holder has come. On SQLite the same holds for errors that roll back, such as those of INSERT OR ROLLBACK.
func (s SQL) Tx(ctx context.Context, db *sql.DB, lock string, f func(tx *sql.Tx) error) error {
	fence, err := FenceFromContext(ctx, lock)
	if err != nil {
		return fault(lock, err)
	}
	return s.tx(ctx, db, Token{lock, fence}, f)
}

func (s SQL) tx(ctx context.Context, db *sql.DB, t Token, f func(tx *sql.Tx) error) error {
	tx, err := s.begin(ctx, db, t)
	if err != nil {
		return fault(t.Lock, err)
	}
	return s.finish(ctx, tx, t.Lock, f)
}

// finish calls f with a transaction that holds the lock's row, and commits it.
func (s SQL) finish(ctx context.Context, tx *sql.Tx, lock string, f func(tx *sql.Tx) error) error {
	defer func() { _ = tx.Rollback() }() // without effect after Commit
	if err := f(tx); err != nil {
		return err
	}
	if err := s.commit(ctx, tx); err != nil {
		return fault(lock, err)
	}
	return nil
}

func (s SQL) commit(ctx context.Context, tx *sql.Tx) error {
	q, err := s.statements()
	if err != nil {
		return err
	}
	if q.marked != "" {
		if _, err := tx.ExecContext(ctx, q.marked); err != nil {
			return fmt.Errorf("the transaction has ended before its commit, as by a deadlock or a statement that commits: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// begin returns a transaction that has accepted the token and holds the lock's row.
func (s SQL) begin(ctx context.Context, db *sql.DB, t Token) (*sql.Tx, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	q, err := s.statements()
	if err != nil {
		return nil, err
	}
	tx, err := raised(ctx, db, q, t)
	if errors.Is(err, sql.ErrNoRows) {
		// The row is created in a transaction of its own. See statements.create.
		if err = q.insert(ctx, db, t.Lock); err == nil {
			tx, err = raised(ctx, db, q, t)
		}
	}
	return tx, err
}

// insert creates the row. It commits: a connection may have autocommit off.
func (q statements) insert(ctx context.Context, db *sql.DB, lock string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // without effect after Commit
	if _, err := tx.ExecContext(ctx, q.create, []byte(lock)); err != nil {
		return err
	}
	return tx.Commit()
}

func raised(ctx context.Context, db *sql.DB, q statements, t Token) (*sql.Tx, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err := q.raise(ctx, tx, t); err != nil {
		_ = tx.Rollback() // the first error is the cause
		return nil, err
	}
	return tx, nil
}

// raise locks the row of t.Lock until the end of the transaction, and raises its fence. It must be the first
// statement of the transaction: what follows then reads what the last holder of the row has committed.
func (q statements) raise(ctx context.Context, tx *sql.Tx, t Token) error {
	args := []any{[]byte(t.Lock), int64(t.Fence >> countBits), int64(t.Fence & maxCount)}
	if q.create != "" {
		args = args[:1]
	}
	largest, err := scan(tx.QueryRowContext(ctx, q.lock, args...))
	switch {
	case err != nil:
		return err
	case t.Fence < largest:
		return &conclave.StaleFenceError{Presented: t.Fence, Largest: largest}
	case t.Fence > largest:
		_, err = tx.ExecContext(ctx, q.update, int64(t.Fence>>countBits), int64(t.Fence&maxCount), []byte(t.Lock))
	}
	if err == nil && q.mark != "" {
		_, err = tx.ExecContext(ctx, q.mark)
	}
	return err
}

// A fence is stored as its epoch and its count. Both fit signed columns, order as the fence does,
// and can be read by people.
const (
	countBits = 48
	maxCount  = 1<<countBits - 1
	maxEpoch  = 1<<16 - 1
)

func scan(row *sql.Row) (conclave.Fence, error) {
	var epoch, count int64
	if err := row.Scan(&epoch, &count); err != nil {
		return 0, err
	}
	if epoch < 0 || epoch > maxEpoch || count < 0 || count > maxCount {
		return 0, fmt.Errorf("%w: the table has epoch %d and count %d, which is no fence", conclave.ErrCorrupt, epoch, count)
	}
	return conclave.Fence(epoch)<<countBits | conclave.Fence(count), nil
}

// Largest returns the largest fence that has been accepted for the lock, or 0 for none. It waits for no
// transaction.
func (s SQL) Largest(ctx context.Context, db *sql.DB, lock string) (conclave.Fence, error) {
	largest, err := s.largest(ctx, db, lock)
	return largest, fault(lock, err)
}

func (s SQL) largest(ctx context.Context, db *sql.DB, lock string) (conclave.Fence, error) {
	if err := validateName(lock); err != nil {
		return 0, err
	}
	q, err := s.statements()
	if err != nil {
		return 0, err
	}
	largest, err := q.committed(ctx, db, lock)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return largest, err
}

func (q statements) committed(ctx context.Context, db *sql.DB, lock string) (conclave.Fence, error) {
	if q.create == "" {
		return scan(db.QueryRowContext(ctx, q.read, []byte(lock)))
	}
	// In MySQL a connection may have autocommit off. Without a transaction of its own the read would be
	// one of the snapshot that the first read of the pooled connection has made, however old.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	return scan(tx.QueryRowContext(ctx, q.read, []byte(lock)))
}

// Guard returns a guard for [Middleware] that remembers in the database.
func (s SQL) Guard(db *sql.DB) *SQLGuard { return &SQLGuard{s, db} }

// SQLGuard is a [ContextGuard] that outlives its process. A later holder may come between its check
// and the write; only [SQL.Tx] makes them one step.
type SQLGuard struct {
	sql SQL
	db  *sql.DB
}

// Check is CheckContext without a limit of time.
func (g *SQLGuard) Check(lock string, f conclave.Fence) error {
	return g.CheckContext(context.Background(), lock, f)
}

// CheckContext accepts f if no larger fence has been accepted for the lock, and returns an error
// that wraps a *conclave.StaleFenceError otherwise. It writes only if f is larger than all before, and
// waits then for transactions for the same lock. It returns conclave.ErrInvalid for an invalid
// name or table, ErrMissing for fence 0, and the database's errors.
func (g *SQLGuard) CheckContext(ctx context.Context, lock string, f conclave.Fence) error {
	t := Token{lock, f}
	if err := t.validate(); err != nil {
		return fault(lock, err)
	}
	largest, err := g.sql.largest(ctx, g.db, lock)
	switch {
	case err != nil:
		return fault(lock, err)
	case f < largest:
		return fault(lock, &conclave.StaleFenceError{Presented: f, Largest: largest})
	case f == largest:
		return nil
	}
	return g.sql.tx(ctx, g.db, t, func(*sql.Tx) error { return nil })
}

// fault makes the error of a lock; nil stays nil.
func fault(lock string, err error) error {
	if err == nil {
		return nil
	}
	return &conclave.Error{Op: "check", Name: lock, Err: err}
}
