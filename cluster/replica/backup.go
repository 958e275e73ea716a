package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/backup"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// ErrUnconfirmed: a backup is complete, but no quorum has confirmed that its state is up
// to date.
var ErrUnconfirmed = errors.New("the backup is complete, and has what this member had applied; " +
	"no quorum has confirmed that this is everything that was acknowledged")

// IncompleteError: a backup broke off. What was written of it, if anything, is no backup.
type IncompleteError struct{ Cause error }

func (e *IncompleteError) Error() string { return "the backup broke off: " + e.Cause.Error() }

// Unwrap returns e.Cause.
func (e *IncompleteError) Unwrap() error { return e.Cause }

const (
	backupPage = 1 << 20 // bytes that are read at once

	// confirmElections is how many election timeouts a backup waits for a leader.
	confirmElections = 3
)

// backups writes backups, each on the goroutine of its caller.
type backups struct {
	cfg         *Config
	status      func() *Status
	readApplied func(context.Context) (uint64, error) // the applied index by a linearizable read
	checkpoint  func()                                // has the loop write the applied state soon
}

// write is Replica.Backup.
func (b *backups) write(ctx context.Context, w io.Writer) error {
	err := b.backUp(ctx, w)
	var incomplete *IncompleteError
	if err == nil || errors.As(err, &incomplete) || errors.Is(err, ErrUnconfirmed) || errors.Is(err, tickets.ErrBusy) {
		return err
	}
	return &IncompleteError{err}
}

// backUp is write with the bare cause, unless it is one of writing.
func (b *backups) backUp(ctx context.Context, w io.Writer) error {
	level := b.status().Level // of an earlier state than the backup's
	index, unconfirmed := b.confirmed(ctx)
	if unconfirmed != nil && !errors.Is(unconfirmed, ErrUnconfirmed) {
		return unconfirmed
	}
	if unconfirmed != nil {
		b.cfg.Logger.Warn("backup without the confirmation of a quorum")
		index = b.status().Applied
	}
	state, err := b.viewFrom(ctx, index)
	if err != nil {
		return err
	}
	defer state.close()
	// The disk is closed when no view is open: this one ends with the member, whatever
	// the caller's writer does.
	defer context.AfterFunc(b.cfg.Lifetime, state.close)()
	header, err := b.header(state.view)
	if err != nil {
		return err
	}
	header.FeatureLevel, header.Confirmed = level, unconfirmed == nil
	if err := b.writeState(ctx, w, header, state); err != nil {
		return &IncompleteError{err}
	}
	return unconfirmed
}

// confirmed returns an index up to which everything is applied that was acknowledged
// before the call. Without a leader it returns ErrUnconfirmed after a while: a slow one
// is waited for.
func (b *backups) confirmed(ctx context.Context) (uint64, error) {
	for {
		index, err := b.tryConfirm(ctx)
		if !errors.Is(err, ErrUnconfirmed) || b.status().Leader == 0 {
			return index, err
		}
	}
}

func (b *backups) tryConfirm(ctx context.Context) (uint64, error) {
	bounded, cancel := context.WithTimeout(ctx, confirmElections*b.cfg.Election)
	defer cancel()
	index, err := b.readApplied(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil && b.cfg.Lifetime.Err() == nil {
		return 0, ErrUnconfirmed
	}
	return index, err
}

// viewFrom returns a view of the state at index or later, which it has written.
func (b *backups) viewFrom(ctx context.Context, index uint64) (*backupView, error) {
	b.checkpoint()
	for {
		v, err := b.cfg.Log.View()
		if err != nil {
			return nil, b.stoppedBy(err)
		}
		if v.Index >= index {
			return &backupView{view: v}, nil
		}
		if err := v.Close(); err != nil {
			return nil, err
		}
		retry := time.NewTimer(time.Millisecond)
		select {
		case <-retry.C:
		case <-ctx.Done():
			retry.Stop()
			return nil, ctx.Err()
		case <-b.cfg.Lifetime.Done():
			retry.Stop()
			return nil, b.cfg.Stopped()
		}
	}
}

func (b *backups) writeState(ctx context.Context, to io.Writer, header *wire.BackupHeader, state *backupView) error {
	w, err := backup.NewWriter(to, header)
	if err != nil {
		return err
	}
	var after []byte
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		pairs, err := state.page(after)
		switch {
		case err != nil:
			return b.stoppedBy(fmt.Errorf("read the state: %w", err))
		case len(pairs) == 0:
			return w.End()
		}
		if err := w.Add(pairs); err != nil {
			return err
		}
		after = pairs[len(pairs)-1].Key
	}
}

func (b *backups) header(v *raftlog.View) (*wire.BackupHeader, error) {
	cluster := b.cfg.Cluster()
	conf, err := proto.Marshal(v.ConfState)
	return &wire.BackupHeader{
		Group: b.cfg.Group, Cluster: cluster[:], Member: b.cfg.Member,
		Index: v.Index, Term: v.Term, Digest: v.Digest, ConfState: conf,
	}, err
}

// stoppedBy returns why an operation on the disk failed.
func (b *backups) stoppedBy(err error) error {
	if b.cfg.Lifetime.Err() != nil {
		return b.cfg.Stopped()
	}
	return err
}

// backupView is a view that one goroutine reads and another one may close.
type backupView struct {
	use  wait.Lock // held while the view is read or closed
	view *raftlog.View
	gone bool // closed
}

func (v *backupView) page(after []byte) ([]wire.Change, error) {
	v.use.Acquire()
	defer v.use.Release()
	if v.gone {
		return nil, ErrStopped
	}
	return v.view.Page(after, backupPage)
}

func (v *backupView) close() {
	v.use.Acquire()
	defer v.use.Release()
	if !v.gone {
		v.gone = true
		_ = v.view.Close() // it was only read
	}
}
