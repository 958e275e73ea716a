//go:build unix

package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"

	_ "github.com/jackc/pgx/v5/stdlib"
)

// sessionTTL is how long a holder may go without renewing its session. The story waits
// for it to expire. With a much shorter one a busy machine that stalls would also end the
// sessions of the workers that run.
const sessionTTL = 10 * time.Second

// guard keeps the largest fence of each lock in the table conclave_fences, beside the data.
var guard = fencing.SQL{Dialect: fencing.PostgreSQL}

// worker is a program that writes to the database while it holds the lock.
type worker struct {
	name, dir, join, source string
	unfenced                bool

	out   io.Writer
	db    *sql.DB
	lock  *conclave.FencedLock
	fence conclave.Fence // of the current hold
}

func (w *worker) logf(format string, args ...any) { fmt.Fprintf(w.out, format+"\n", args...) }

// run opens the worker's member and follows the orders in its input, until that
// ends: also when the director is killed.
func (w *worker) run(ctx context.Context, in io.Reader, out io.Writer) error {
	w.out = out
	var err error
	if w.db, err = sql.Open("pgx", w.source); err != nil {
		return err
	}
	defer w.db.Close()
	node, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer shutDown(node)
	w.lock = node.FencedLock(lockName)
	w.logf("is in the group")
	for orders := bufio.NewScanner(in); orders.Scan(); {
		if err := w.follow(ctx, orders.Text()); err != nil {
			return fmt.Errorf("%s: %w", orders.Text(), err)
		}
	}
	return nil
}

func (w *worker) open(ctx context.Context) (*conclave.Node, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.logf("listens on %s", l.Addr())
	cfg := &conclave.Config{
		Name: w.name, Dir: w.dir, Listener: l, Expect: 3,
		// The paused member may be the leader of the group. The sessions of the
		// others must outlive the election of a new one.
		SessionTTL: sessionTTL, ElectionTimeout: sessionTTL / 10, HeartbeatInterval: sessionTTL / 100,
	}
	if w.join != "" {
		cfg.Join = []string{w.join}
	}
	return conclave.Open(ctx, cfg)
}

// shutDown closes the node gracefully. The context of run may be done, so Close
// gets one of its own.
func shutDown(node *conclave.Node) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = node.Close(ctx) // the worker holds nothing any more
}

func (w *worker) follow(ctx context.Context, order string) error {
	switch order {
	case "lock":
		return w.acquire(ctx)
	case "write":
		return w.write(ctx)
	case "unlock":
		w.logf("releases the lock")
		return w.lock.Unlock(ctx)
	}
	return errors.New("unknown order")
}

func (w *worker) acquire(ctx context.Context) (err error) {
	w.logf("requests the lock")
	if w.fence, err = w.lock.Lock(ctx); err != nil {
		return err
	}
	w.logf("holds the lock with fence %v, and waits for its next invoice", w.fence)
	return nil
}

// write writes an invoice as the holder of the lock. Between Lock and the commit any time may pass, and no
// check on this side would help: the process can be paused after it.
func (w *worker) write(ctx context.Context) error {
	ctx = conclave.ContextWithFence(ctx, w.fence)
	err := w.transaction(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO invoices (written_by, fence) VALUES ($1, $2)", w.name, w.fence.String())
		return err
	})
	var stale *conclave.StaleFenceError
	switch {
	case err == nil:
		w.logf("writes an invoice with fence %v; the database accepts it", w.fence)
		return nil
	case errors.As(err, &stale):
		w.logf("writes an invoice with fence %v; the database REFUSES it: %v", w.fence, err)
		w.logf("wrote nothing. While it was paused the lock was granted to another holder, with fence %v", stale.Largest)
		return w.giveUp(ctx)
	}
	return err
}

// transaction calls f with a transaction that guard has admitted, or, with -unfenced, with any.
func (w *worker) transaction(ctx context.Context, f func(*sql.Tx) error) error {
	if !w.unfenced {
		return guard.Tx(ctx, w.db, lockName, f)
	}
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback() // the first error is the cause
		return err
	}
	return tx.Commit()
}

// giveUp acknowledges the loss of the lock. A program would queue for it again, and begin its work from the
// data as they are then.
func (w *worker) giveUp(ctx context.Context) error {
	if err := w.lock.Unlock(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		return fmt.Errorf("the database refused a holder: %w", err)
	}
	w.logf("gives up the lost hold")
	return nil
}
