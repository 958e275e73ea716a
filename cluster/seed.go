package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/backup"
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// Disaster recovery: the seed of a new group, from a backup or from a directory that has
// survived. The seed is a directory with a new member, the only voter of a new cluster,
// whose ID keeps every member of the old group out. Its log begins behind the end of the
// old one that is known here, so indexes and terms do not go back.

// Offline is a directory that no member runs on, and what gives its state a meaning.
type Offline struct {
	Dir    string
	FS     vfs.FS // nil: the operating system's
	Logger *slog.Logger

	LoadMachine func(state iter.Seq2[[]byte, []byte]) (Machine, error)
	// FirstStateOf returns the state with which a further group begins.
	FirstStateOf func(*fact.GroupRecord) []wire.Change
	// CheckSeed returns an error if SeedMachine would.
	CheckSeed func(Machine) error
	// SeedMachine returns the state with which a new group begins in place of the machine's. The machine is not used afterwards.
	SeedMachine func(m Machine, in fact.Seeding) (iter.Seq2[[]byte, []byte], error)
}

var (
	// ErrNoGroup: the member of a directory has never belonged to a group.
	ErrNoGroup = errors.New("the member in this directory has never belonged to a group")
	// ErrNotEmpty, ErrUnfinished: see package storage.
	ErrNotEmpty   = storage.ErrNotEmpty
	ErrUnfinished = storage.ErrUnfinished
)

// Restore makes the directory, which must be empty or missing, the seed of a new cluster with the states of a
// backup: of all its groups, or of one further group, which becomes the default one. The cluster has the name of the old one. Restore reads the whole backup before it
// changes anything.
func Restore(ctx context.Context, o Offline, from io.Reader) error {
	if err := storage.CheckVacant(o.options(storage.Fill)); err != nil {
		return err
	}
	states, err := o.restored(ctx, from)
	if err != nil {
		return err
	}
	first := states[0]
	p := planting{ctx: ctx, offline: o, record: seedIdentity(first.header.GetGroup())}
	return o.with(storage.Fill, func(store *storage.Store, log *raftlog.Log) error {
		for _, s := range states {
			of, in := log, fact.Seeding{}
			if s == first {
				in = fact.Seeding{Keep: states.has, Default: true}
			} else if of, err = log.OpenGroup(s.header.GetFurther()); err != nil {
				return err
			}
			if err := p.stage(of, s.machine, raftlog.Applied{Index: s.header.GetIndex() + 1, Term: s.header.GetTerm() + 1}, in); err != nil {
				return err
			}
		}
		if err := p.plant(); err != nil {
			return err
		}
		return store.Finish()
	})
}

// restoredState is the state of a group in a backup.
type restoredState struct {
	header  *wire.BackupHeader
	machine Machine
}

// restoredStates are those of a backup, that of the default group of the new cluster first.
type restoredStates []*restoredState

// has reports whether they have that of a further group.
func (l restoredStates) has(number uint32) bool {
	for _, s := range l[1:] {
		if s.header.GetFurther() == number {
			return true
		}
	}
	return false
}

// restored reads a backup to its end. A further group that was being deleted has ended.
func (o Offline) restored(ctx context.Context, from io.Reader) (list restoredStates, err error) {
	r, err := backup.Open(from)
	for err == nil {
		var s *restoredState
		if s, err = o.restoredState(ctx, r); err != nil {
			break
		}
		if err = list.check(s); err != nil {
			break
		}
		if f := s.machine.Following(); len(list) == 0 || !f.Sealed {
			list = append(list, s)
		}
		err = r.Next()
	}
	if err != io.EOF {
		return nil, err
	}
	return list, nil
}

func (o Offline) restoredState(ctx context.Context, r *backup.Reader) (*restoredState, error) {
	h := r.Header
	if h.GetIndex() > core.MaxPosition || h.GetTerm() > core.MaxPosition || h.GetGroup() == "" {
		return nil, backup.Damaged("index %d and term %d of group %q", h.GetIndex(), h.GetTerm(), h.GetGroup())
	}
	var failed error
	machine, err := o.LoadMachine(r.All(ctx.Err, &failed))
	if failed == nil && err == nil {
		err = o.CheckSeed(machine)
	}
	switch {
	case failed != nil:
		return nil, failed
	case err != nil && h.GetFurther() != 0:
		return nil, fmt.Errorf("load the backup: group %q: %w", h.GetName(), err)
	case err != nil:
		return nil, fmt.Errorf("load the backup: %w", err)
	}
	return &restoredState{h, machine}, nil
}

// check refuses a document with the state of another group than it says, and one of a group that the default one does not list.
func (l restoredStates) check(s *restoredState) error {
	number, name := s.header.GetFurther(), s.header.GetName()
	var is uint32
	if f := s.machine.Following(); f != nil {
		is = f.Group
	}
	switch {
	case is != number:
		return backup.Damaged("the document of group %d has the state of group %d", number, is)
	case len(l) == 0:
		return s.checkCreated()
	}
	if r := l[0].machine.Directory().Group(number); r == nil || r.Name != name {
		return backup.Damaged("the default group does not list group %d, %q", number, name)
	}
	return nil
}

// checkCreated refuses a group that the state lists as created later than the state is: no backup of the new cluster would have it.
func (s *restoredState) checkCreated() error {
	for _, r := range s.machine.Directory().Groups {
		if r.Created > s.header.GetIndex() {
			return backup.Damaged("group %q was created at index %d, and the state is that at %d", r.Name, r.Created, s.header.GetIndex())
		}
	}
	return nil
}

// Recover makes the directory of a member of a lost group the seed of a new one, in one
// write. What is in the member's log is applied before, known to be committed or not. A
// seed on which no member has started stays as it is.
func Recover(ctx context.Context, o Offline) error {
	return o.with(storage.OpenExisting, func(_ *storage.Store, log *raftlog.Log) error {
		record, err := survivor(log)
		if err != nil || record.GetBoot() == 0 {
			return err
		}
		machine, err := o.replay(ctx, log)
		if err != nil {
			return err
		}
		p := planting{ctx: ctx, offline: o, record: seedIdentity(record.GetGroup())}
		groups := machine.Directory().Groups
		all := func(uint32) bool { return true }
		if err := p.stage(log, machine, after(log), fact.Seeding{Keep: all}); err != nil {
			return err
		}
		for _, r := range groups {
			if err := p.stageGroup(log, r); err != nil {
				return fmt.Errorf("group %q: %w", r.Name, err)
			}
		}
		return p.plant()
	})
}

// after returns the position at which the log of a new group begins, behind all of the old one's that is known here.
func after(log *raftlog.Log) raftlog.Applied {
	term, last, _ := log.Position()
	return raftlog.Applied{Index: last + 1, Term: term + 1}
}

// survivor returns the identity of a member whose state a new group can begin with.
func survivor(log *raftlog.Log) (*wire.Identity, error) {
	record, err := ownIdentity(log)
	if err != nil {
		return nil, err
	}
	switch {
	case record.GetRemoved():
		return nil, fmt.Errorf("%w: its state is older than its removal: recover from another directory", ErrRemoved)
	case len(record.GetCluster()) == 0:
		return nil, ErrNoGroup
	case !log.Bootstrapped():
		return nil, fmt.Errorf("%w: the member belongs to a cluster and has no log", storage.ErrCorrupt)
	}
	return record, replica.CheckDivergence(log)
}

// ownIdentity reads the identity record of a directory without changing it.
func ownIdentity(log *raftlog.Log) (*wire.Identity, error) {
	data, err := log.Local(identity.Record)
	switch {
	case err != nil:
		return nil, err
	case data == nil:
		return nil, ErrNoGroup
	}
	record, err := identity.Decode(data)
	if err != nil {
		return nil, err
	}
	return record, identity.CheckKey(record)
}

// replay loads the machine and applies the whole log to it.
func (o Offline) replay(ctx context.Context, log *raftlog.Log) (Machine, error) {
	machine, err := raftlog.Load(log, func(state iter.Seq2[[]byte, []byte]) (Machine, error) {
		return o.LoadMachine(until(ctx, state))
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return machine, core.Replay(log, machine, ctx.Err)
}

// until ends a sequence when ctx does; the caller looks at ctx afterwards.
func until(ctx context.Context, state iter.Seq2[[]byte, []byte]) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for key, value := range state {
			if ctx.Err() != nil || !yield(key, value) {
				return
			}
		}
	}
}

// seedIdentity returns the identity of the first member of a new group, which has not
// started yet: its boot counter is 0.
func seedIdentity(group string) *wire.Identity {
	record, cluster := identity.NewRecord(group), identity.RandomID()
	record.Cluster = cluster[:]
	return record
}

func (o Offline) options(access storage.Access) storage.Options {
	giveUp := make(chan struct{})
	close(giveUp) // a tool reports a shortage of the process, and is run again
	return storage.Options{Dir: o.Dir, FS: o.FS, Logger: o.Logger, Access: access, GiveUp: giveUp}
}

// with runs f on the log of the directory.
func (o Offline) with(access storage.Access, f func(*storage.Store, *raftlog.Log) error) error {
	store, err := storage.Open(o.options(access))
	if err != nil {
		return err
	}
	log, err := raftlog.Open(store)
	if err == nil {
		err = f(store, log)
	}
	closed := store.Close()
	if failure := store.Err(); failure != nil {
		return fmt.Errorf("disk failed: %w", failure)
	}
	return errors.Join(err, closed)
}

// planting replaces the content of a directory by the seed of a new group, and of the further groups that it has. It stages
// the state of each, and then begins all in one write.
type planting struct {
	ctx     context.Context
	offline Offline
	record  *wire.Identity // of the new group's first member
	staged  []raftlog.Write
}

// stage stages the state of a group, whose machine has applied the whole log.
func (p *planting) stage(log *raftlog.Log, machine Machine, at raftlog.Applied, in fact.Seeding) error {
	in.First = identity.FounderOf(p.record)
	state, err := p.offline.SeedMachine(machine, in)
	if err != nil {
		return err
	}
	stage, err := log.Stage()
	if err != nil {
		return err
	}
	for key, value := range state {
		if err := errors.Join(p.ctx.Err(), stage.Put(key, value)); err != nil {
			return err
		}
	}
	generation, err := stage.Finish()
	if err := errors.Join(err, p.ctx.Err()); err != nil {
		return err
	}
	p.staged = append(p.staged, raftlog.Write{Log: log, Op: raftlog.Seed{Install: raftlog.Install{
		Index: at.Index, Term: at.Term, Generation: generation,
		ConfState: &raftpb.ConfState{Voters: []uint64{p.record.GetMember()}},
		HardState: &raftpb.HardState{Term: &at.Term, Vote: new(uint64(0)), Commit: &at.Index},
	}}})
	return nil
}

// stageGroup stages the state of a further group. One that has no log here yet begins as it was created.
func (p *planting) stageGroup(log *raftlog.Log, r *fact.GroupRecord) error {
	other, err := log.OpenGroup(r.Number)
	if err == nil {
		err = replica.CheckDivergence(other)
	}
	if err != nil {
		return err
	}
	machine, err := p.offline.groupMachine(p.ctx, other, r)
	if err != nil {
		return err
	}
	return p.stage(other, machine, after(other), fact.Seeding{})
}

// groupMachine returns the machine of a further group with the whole log applied.
func (o Offline) groupMachine(ctx context.Context, log *raftlog.Log, r *fact.GroupRecord) (Machine, error) {
	if log.Bootstrapped() {
		return o.replay(ctx, log)
	}
	return o.LoadMachine(func(yield func(key, value []byte) bool) {
		for _, c := range o.FirstStateOf(r) {
			if !yield(c.Key, c.Value) {
				return
			}
		}
	})
}

// plant begins all that is staged. The identity is a record of the default group, which is the first.
func (p *planting) plant() error {
	data, err := proto.Marshal(p.record)
	if err != nil {
		return err
	}
	first := p.staged[0].Op.(raftlog.Seed) // of stage
	first.Locals = map[string][]byte{identity.Record: data}
	p.staged[0].Op = first
	return raftlog.ExecuteAll(p.staged)
}
