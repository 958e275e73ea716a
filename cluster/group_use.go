package cluster

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/conclave-go/conclave/cluster/backup"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/tickets"
)

// Replica returns this member's replica of a further group, which the default group's list must have. It blocks until that
// runs and is in use, or ctx is done. ErrGroupDeleted; ErrStopped.
func (g *Groups) Replica(ctx context.Context, number uint32) (*replica.Replica, error) {
	h, err := g.await(ctx, number)
	if err != nil {
		return nil, err
	}
	return h.replica, nil
}

// AwaitDeleted blocks until this member has erased a further group, or ctx is done. ErrStopped.
func (g *Groups) AwaitDeleted(ctx context.Context, number uint32) error {
	return g.until(ctx, func() bool {
		return (*g.hosted.Load())[number] == nil && g.defaults.Status().Directory.Dropped(number)
	})
}

// GroupStatus is a further group as this member sees it.
type GroupStatus struct {
	Record *fact.GroupRecord
	Status *replica.Status // nil: this member's replica does not run yet
}

// Status returns the further groups, by number.
func (g *Groups) Status() (list []GroupStatus) {
	for _, r := range g.defaults.Status().Directory.Groups {
		s := GroupStatus{Record: r}
		if h := g.started(r.Number); h != nil {
			s.Status = h.replica.Status()
		}
		list = append(list, s)
	}
	return list
}

// Backup writes the states of all groups, each at an index of its own: that of the default group first, and behind it those of the further
// groups that it lists, without those that are deleted meanwhile. All indexes are chosen before anything is
// written. If a quorum of each group confirms it in time, the states have everything that was acknowledged before the call;
// otherwise the backup is written nevertheless, and the error is ErrUnconfirmed. ErrBusy: too many reads are pending, and nothing
// was written. Every other error is an IncompleteError, also one of w that wraps those: w may be a program's own way to write
// to a group.
func (g *Groups) Backup(ctx context.Context, w io.Writer) error { return backupError(g.backUp(ctx, w)) }

// BackupOf is Backup for a further group alone, which the default group's list must have. ErrGroupDeleted: nothing was written.
func (g *Groups) BackupOf(ctx context.Context, number uint32, w io.Writer) error {
	b, err := g.openBackup(ctx, number)
	if err != nil {
		return backupError(err)
	}
	defer b.Close()
	if _, err := b.Write(ctx, w); err != nil {
		return err
	}
	return b.Unconfirmed
}

// backupError makes an IncompleteError of the bare cause of a backup that was not written.
func backupError(err error) error {
	var incomplete *replica.IncompleteError
	if err == nil || errors.As(err, &incomplete) || errors.Is(err, ErrUnconfirmed) || errors.Is(err, tickets.ErrBusy) || errors.Is(err, ErrGroupDeleted) {
		return err
	}
	return &replica.IncompleteError{Cause: err}
}

func (g *Groups) life() replica.HostLife {
	return replica.HostLife{Lifetime: g.lifetime, Stopped: g.stopped}
}

func (g *Groups) backUp(ctx context.Context, w io.Writer) error {
	first, err := g.defaults.OpenBackup(ctx, g.life())
	if err != nil {
		return err
	}
	defer first.Close()
	further, err := g.openFurther(ctx, first.Header.GetIndex())
	defer closeAll(further)
	if err != nil {
		return err
	}
	first.Header.Series = len(further) > 0
	series, unconfirmed := backup.NewSeries(), error(nil)
	for _, b := range append([]*replica.Backup{first}, further...) {
		document, err := b.Write(ctx, w)
		if err != nil {
			return err
		}
		b.Close()
		series.Add(document)
		unconfirmed = cmp.Or(unconfirmed, b.Unconfirmed)
	}
	if first.Header.GetSeries() {
		if err := series.End(w); err != nil {
			return &replica.IncompleteError{Cause: err}
		}
	}
	return unconfirmed
}

// openFurther opens the states of the further groups that the default group has at that index, by number. Those that
// it has no more are left out.
func (g *Groups) openFurther(ctx context.Context, index uint64) ([]*replica.Backup, error) {
	var list *fact.Directory
	if err := g.defaults.ReadStale(ctx, func(machine Machine) { list = machine.Directory() }); err != nil {
		return nil, err
	}
	all, errs := make([]*replica.Backup, len(list.Groups)), make([]error, len(list.Groups))
	var opening sync.WaitGroup
	for i, r := range list.Groups {
		if r.Created <= index {
			// All at once: without a quorum each waits for a leader.
			opening.Go(func() { all[i], errs[i] = g.openBackup(ctx, r.Number) })
		}
	}
	opening.Wait()
	var open []*replica.Backup
	for i, b := range all {
		if b != nil {
			open = append(open, b)
		}
		if errors.Is(errs[i], ErrGroupDeleted) {
			errs[i] = nil
		}
	}
	return open, cmp.Or(errs...)
}

// openBackup opens the state of a further group.
func (g *Groups) openBackup(ctx context.Context, number uint32) (*replica.Backup, error) {
	r, err := g.Replica(ctx, number)
	if err != nil {
		return nil, err
	}
	record := g.defaults.Status().Directory.Group(number)
	if record == nil {
		return nil, ErrGroupDeleted
	}
	b, err := r.OpenBackup(ctx, g.life())
	if err != nil {
		return nil, err
	}
	if f := r.Status().Following; f != nil && f.Sealed { // and deleted, perhaps, which this member is to apply yet
		b.Close()
		return nil, ErrGroupDeleted
	}
	b.Header.Name = record.Name
	return b, nil
}

func closeAll(list []*replica.Backup) {
	for _, b := range list {
		b.Close()
	}
}
