//go:build unix

package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// A holder does not begin while the transaction of another one is open, and gives up with its context.
func (b *database) waits(t *testing.T) {
	err := b.Tx(conclave.ContextWithFence(t.Context(), 1), b.db, "waits", func(*sql.Tx) error {
		ctx, cancel := context.WithTimeout(conclave.ContextWithFence(t.Context(), 2), time.Second/2)
		defer cancel()
		err := b.Tx(ctx, b.db, "waits", func(*sql.Tx) error { return errors.New("entered beside another holder") })
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("got %w before the deadline", err)
		}
		t.Log("after its deadline:", err)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := b.write(t.Context(), "waits", 2); err != nil {
		t.Errorf("after the transaction: %v", err)
	}
}

// A second holder comes while the first one's transaction is open: the second waits, and the first is
// refused from then on. The other way round, the first waits and is refused.
func (b *database) twoHolders(t *testing.T) {
	for _, c := range []struct {
		name        string
		open, other conclave.Fence
	}{{"larger after smaller", 1, 2}, {"smaller after larger", 2, 1}} {
		t.Run(c.name, func(t *testing.T) {
			lock := c.name
			var committing atomic.Bool
			done := make(chan error, 1)
			err := b.Tx(conclave.ContextWithFence(t.Context(), c.open), b.db, lock, func(*sql.Tx) error {
				started := make(chan struct{})
				go func() {
					close(started)
					done <- b.Tx(conclave.ContextWithFence(t.Context(), c.other), b.db, lock, func(*sql.Tx) error {
						if !committing.Load() {
							return errors.New("entered beside another holder")
						}
						return nil
					})
				}()
				<-started
				committing.Store(true)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := <-done; c.other > c.open && err != nil {
				t.Errorf("the later holder: %v", err)
			} else if c.other < c.open {
				refused(t, err, c.other, c.open)
			}
			if c.other > c.open {
				refused(t, b.write(t.Context(), lock, c.open), c.open, c.other)
			}
		})
	}
}

const (
	writers = 12
	rounds  = 25
)

// Holders with fences in no order write at the same time. Each write reads the number of the last one without
// a lock of its own, so a write that does not see the last one takes its number. In the order of their
// numbers the fences must never fall.
func (b *database) writersOfManyHolders(t *testing.T) {
	lock := t.Name()
	b.exec(t, "CREATE TABLE writes (number INTEGER PRIMARY KEY, fence BIGINT)")
	defer b.exec(t, "DROP TABLE writes")
	var wg sync.WaitGroup
	var grants atomic.Int64
	for range writers {
		wg.Go(func() {
			for range rounds {
				latest := 10 + grants.Add(1)/4
				b.append(t, lock, conclave.Fence(latest-rand.Int64N(4)))
			}
		})
	}
	wg.Wait()
	rows, err := b.db.QueryContext(t.Context(), "SELECT number, fence FROM writes ORDER BY number")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var number, fence, last, count int64
	for ; rows.Next(); count++ {
		if err := rows.Scan(&number, &fence); err != nil {
			t.Fatal(err)
		}
		if number != count || fence < last {
			t.Errorf("write %d, numbered %d, has fence %d after %d", count, number, fence, last)
		}
		last = fence
	}
	largest, err := b.Largest(t.Context(), b.db, lock)
	if err := errors.Join(err, rows.Err()); err != nil || int64(largest) != last || count == 0 {
		t.Errorf("%d writes, the last one with fence %d; the guard has %v, %v", count, last, largest, err)
	}
	t.Logf("%d of %d writes accepted", count, writers*rounds)
}

func (b *database) append(t *testing.T, lock string, f conclave.Fence) {
	ctx := conclave.ContextWithFence(t.Context(), f)
	for {
		err := b.Tx(ctx, b.db, lock, func(tx *sql.Tx) error {
			var next int64
			if err := tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(number) + 1, 0) FROM writes").Scan(&next); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, b.query("INSERT INTO writes VALUES (?, ?)"), next, int64(f))
			return err
		})
		switch {
		case err == nil, errors.Is(err, conclave.ErrStaleFence):
			return
		case b.isSerialization(err): // not at the default isolation
		default:
			t.Errorf("fence %v: %v", f, err)
			return
		}
	}
}

// isSerialization reports whether PostgreSQL asks for a retry, as it does only above READ COMMITTED.
func (b *database) isSerialization(err error) bool {
	var state interface{ SQLState() string }
	if !errors.As(err, &state) || state.SQLState() != "40001" {
		return false
	}
	var level string
	if b.db.QueryRow("SHOW default_transaction_isolation").Scan(&level) != nil {
		return false
	}
	return level != "read committed"
}

// Rows of locks that were never used are created at the same time, by several holders for each lock.
func (b *database) firstUse(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 10 {
		for f := range conclave.Fence(4) {
			wg.Go(func() {
				err := b.write(t.Context(), fmt.Sprintf("%s %d", t.Name(), i), f+1)
				if err != nil && !errors.Is(err, conclave.ErrStaleFence) {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	for i := range 10 {
		if largest, err := b.Largest(t.Context(), b.db, fmt.Sprintf("%s %d", t.Name(), i)); err != nil || largest != 4 {
			t.Errorf("lock %d has %v, %v, want 4", i, largest, err)
		}
	}
}
