package conclavegoose

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3/lock"

	"github.com/conclave-go/conclave"
)

var _ lock.Locker = (*Locker)(nil)

// Locker implements [lock.Locker] of goose. It does not use the database. Providers that share a
// Locker exclude each other, as those of other processes do. All methods are safe for concurrent use.
type Locker struct{ lock *conclave.FencedLock }

// New returns a Locker for goose.WithLocker. name is that of the lock: one for each database. With
// [conclave.Reentrant] providers that share the Locker would not exclude each other.
func New(locks conclave.Locks, name string, opts ...conclave.LockOption) *Locker {
	return &Locker{locks.FencedLock(name, opts...)}
}

// Lock implements [lock.Locker]. It blocks until the lock is granted or ctx, that of the call
// of goose, is done; there is no other bound. Waiters are served in FIFO order, and find
// the migrations applied. Errors are those of [conclave.FencedLock.Lock].
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	if _, err := l.lock.Lock(ctx); err != nil {
		return fmt.Errorf("conclavegoose: %w", err)
	}
	if loss, ok := ctx.Value(lossKey{}).(*loss); ok && loss.locker == l {
		go loss.watch(l.lock.Lost())
	}
	return nil
}

// Unlock implements [lock.Locker]. If the lock was lost during the migrations, the error wraps
// [conclave.ErrLockOwnershipLost], and goose returns it: another process may have run migrations
// meanwhile.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	if err := l.lock.Unlock(ctx); err != nil {
		return fmt.Errorf("conclavegoose: %w", err)
	}
	return nil
}

// Fence returns the fence of the current hold. It does not block; see [conclave.FencedLock.Fence].
func (l *Locker) Fence() (conclave.Fence, error) { return l.lock.Fence() }

// lossKey is the key of a *loss in a context.
type lossKey struct{}

type loss struct {
	locker *Locker
	done   <-chan struct{} // of the context that CancelOnLoss has returned
	cancel context.CancelCauseFunc
}

// CancelOnLoss returns a context for one call of goose, such as Up. It is cancelled, with the cause
// [conclave.ErrLockOwnershipLost], when the lock is lost that the call has acquired by this
// Locker; goose then fails with a context error. Call the returned function after the call.
func (l *Locker) CancelOnLoss(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	ctx = context.WithValue(ctx, lossKey{}, &loss{locker: l, done: ctx.Done(), cancel: cancel})
	return ctx, func() { cancel(nil) }
}

// watch ends when the context does, at the latest after the call of goose.
func (w *loss) watch(lost <-chan struct{}) {
	select {
	case <-lost:
		w.cancel(conclave.ErrLockOwnershipLost)
	case <-w.done:
	}
}
