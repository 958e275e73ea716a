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

// Backup writes the state of this member's machine at one index. It works on the
// caller's goroutine, from a view of the database, so nothing waits for w: neither the
// member nor its shutdown. If a quorum confirms it in time, the state has everything that
// was acknowledged before the call; otherwise the backup is written nevertheless, and the
// error is ErrUnconfirmed. ErrBusy: too many reads are pending, and nothing was written. Every
// other error is an IncompleteError, also one of w that wraps those: w may be a program's own
// way to write to a group.
func (r *Replica) Backup(ctx context.Context, w io.Writer) error {
	err := r.backUp(ctx, w)
	var incomplete *IncompleteError
	if err == nil || errors.As(err, &incomplete) || errors.Is(err, ErrUnconfirmed) || errors.Is(err, tickets.ErrBusy) {
		return err
	}
	return &IncompleteError{err}
}

// backUp is Backup with the bare cause, unless it is one of writing.
func (r *Replica) backUp(ctx context.Context, w io.Writer) error {
	level := r.status.Load().Level // of an earlier state than the backup's
	index, unconfirmed := r.confirmed(ctx)
	if unconfirmed != nil && !errors.Is(unconfirmed, ErrUnconfirmed) {
		return unconfirmed
	}
	if unconfirmed != nil {
		r.log.Warn("backup without the confirmation of a quorum")
		index = r.status.Load().Applied
	}
	state, err := r.viewFrom(ctx, index)
	if err != nil {
		return err
	}
	defer state.close()
	// The disk is closed when no view is open: this one ends with the member, whatever
	// the caller's writer does.
	defer context.AfterFunc(r.cfg.Lifetime, state.close)()
	header, err := r.backupHeader(state.view)
	if err != nil {
		return err
	}
	header.FeatureLevel, header.Confirmed = level, unconfirmed == nil
	if err := r.writeBackup(ctx, w, header, state); err != nil {
		return &IncompleteError{err}
	}
	return unconfirmed
}

// confirmed returns an index up to which everything is applied that was acknowledged
// before the call. Without a leader it returns ErrUnconfirmed after a while: a slow one
// is waited for.
func (r *Replica) confirmed(ctx context.Context) (uint64, error) {
	for {
		index, err := r.tryConfirm(ctx)
		if !errors.Is(err, ErrUnconfirmed) || r.status.Load().Leader == 0 {
			return index, err
		}
	}
}

func (r *Replica) tryConfirm(ctx context.Context) (uint64, error) {
	bounded, cancel := context.WithTimeout(ctx, confirmElections*r.cfg.Election)
	defer cancel()
	applied := make(chan uint64, 1) // a read that was abandoned may still run
	err := r.Read(bounded, func(Machine) { applied <- r.core.Status().Applied })
	switch {
	case err == nil:
		return <-applied, nil
	case ctx.Err() == nil && bounded.Err() != nil && r.cfg.Lifetime.Err() == nil:
		return 0, ErrUnconfirmed
	}
	return 0, err
}

// viewFrom returns a view of the state at index or later, which it has written.
func (r *Replica) viewFrom(ctx context.Context, index uint64) (*backupView, error) {
	r.checkpoint()
	for {
		v, err := r.cfg.Log.View()
		if err != nil {
			return nil, r.stoppedBy(err)
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
		case <-r.cfg.Lifetime.Done():
			retry.Stop()
			return nil, r.cfg.Stopped()
		}
	}
}

func (r *Replica) writeBackup(ctx context.Context, to io.Writer, header *wire.BackupHeader, state *backupView) error {
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
			return r.stoppedBy(fmt.Errorf("read the state: %w", err))
		case len(pairs) == 0:
			return w.End()
		}
		if err := w.Add(pairs); err != nil {
			return err
		}
		after = pairs[len(pairs)-1].Key
	}
}

func (r *Replica) backupHeader(v *raftlog.View) (*wire.BackupHeader, error) {
	cluster := r.cfg.Cluster()
	conf, err := proto.Marshal(v.ConfState)
	return &wire.BackupHeader{
		Group: r.cfg.Group, Cluster: cluster[:], Member: r.cfg.Member,
		Index: v.Index, Term: v.Term, Digest: v.Digest, ConfState: conf,
	}, err
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
