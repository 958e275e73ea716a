package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/backup"
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

// backups opens backups, each on the goroutine of its caller.
type backups struct {
	cfg         *Config
	status      func() *Status
	readApplied func(context.Context) (uint64, error) // the applied index by a linearizable read
	checkpoint  func()                                // has the loop write the applied state soon
}

// errNoState: the group's snapshot is still to come.
var errNoState = errors.New("this member has not received the group's state yet: ask another member")

// Backup is the state of a replica at one index, of which a document is to be written. It keeps the database from discarding
// that state until it is closed, or the host ends.
type Backup struct {
	Header      *wire.BackupHeader
	Unconfirmed error // ErrUnconfirmed: no quorum has confirmed that the state is up to date
	state       *backupView
	host        HostLife
	stop        func() bool
}

// HostLife is the life of the host, which is longer than that of its replica if the group is deleted.
type HostLife struct {
	Lifetime context.Context
	Stopped  func() error // why Lifetime is done
}

// open is Replica.OpenBackup.
func (b *backups) open(ctx context.Context, host HostLife) (*Backup, error) {
	level := b.status().Level // of an earlier state than the backup's
	index, unconfirmed := b.confirmed(ctx)
	if unconfirmed != nil && !errors.Is(unconfirmed, ErrUnconfirmed) {
		return nil, unconfirmed
	}
	if unconfirmed != nil {
		b.cfg.Logger.Warn("backup without the confirmation of a quorum")
		index = b.status().Applied
		if b.cfg.Number != 0 && b.status().Following == nil {
			return nil, errNoState
		}
	}
	state, err := b.viewFrom(ctx, index)
	if err != nil {
		return nil, err
	}
	header, err := b.header(state.view)
	if err != nil {
		state.close()
		return nil, err
	}
	header.FeatureLevel, header.Confirmed = level, unconfirmed == nil
	// The disk is closed when no view is open: this one ends with the host, whatever
	// the caller's writer does.
	stop := context.AfterFunc(host.Lifetime, state.close)
	return &Backup{header, unconfirmed, state, host, stop}, nil
}

// Close releases the state.
func (b *Backup) Close() {
	b.stop()
	b.state.close()
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

// Write writes the document. Every error is an IncompleteError, also one of to that wraps others of this package.
func (b *Backup) Write(ctx context.Context, to io.Writer) (*backup.Writer, error) {
	w, err := backup.NewWriter(to, b.Header)
	var after []byte
	for err == nil {
		if err = ctx.Err(); err != nil {
			break
		}
		var pairs []wire.Change
		if pairs, err = b.page(after); err != nil {
			break
		}
		if len(pairs) == 0 {
			if err = w.End(); err == nil {
				return w, nil
			}
			break
		}
		err = w.Add(pairs)
		after = pairs[len(pairs)-1].Key
	}
	return nil, &IncompleteError{err}
}

func (b *Backup) page(after []byte) ([]wire.Change, error) {
	pairs, err := b.state.page(after)
	switch {
	case err == nil:
		return pairs, nil
	case b.host.Lifetime.Err() != nil:
		return nil, b.host.Stopped()
	}
	return nil, fmt.Errorf("read the state: %w", err)
}

func (b *backups) header(v *raftlog.View) (*wire.BackupHeader, error) {
	cluster := b.cfg.Cluster()
	conf, err := proto.Marshal(v.ConfState)
	return &wire.BackupHeader{
		Group: b.cfg.Group, Cluster: cluster[:], Member: b.cfg.Member, Further: b.cfg.Number,
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
