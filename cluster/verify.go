package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// DirFacts is what a directory contains.
type DirFacts struct {
	Identity   *wire.Identity
	Divergence error // the member has stopped because its state differs, in one of the groups; nil: it has not
	ConfState  *raftpb.ConfState
	Term       uint64 // current

	Applied, Commit, Last uint64  // indexes; Applied is that of the state on the disk
	LastTerm              uint64  // of the last entry
	Machine               Machine // with the whole log applied

	Groups []GroupFacts // by number
}

// GroupFacts is what a directory contains of a further group.
type GroupFacts struct {
	Number  uint32
	Name    string
	Applied uint64 // index of the state on the disk; 0: there is no log yet

	Commit, Last, LastTerm uint64 // as in DirFacts

	Machine Machine
}

// Verify reads and checks a directory, and changes nothing in it.
func Verify(o Offline) (facts DirFacts, err error) {
	err = o.with(storage.ReadOnly, func(_ *storage.Store, log *raftlog.Log) error {
		facts, err = o.facts(log)
		return err
	})
	return facts, err
}

func (o Offline) facts(log *raftlog.Log) (f DirFacts, err error) {
	if f.Identity, err = ownIdentity(log); err != nil {
		return f, err
	}
	if err := f.checkDivergence(log); err != nil {
		return f, err
	}
	hard, conf, err := log.InitialState()
	if err != nil {
		return f, err
	}
	f.ConfState, f.Commit, f.Applied = conf, hard.GetCommit(), log.Applied().Index
	f.Term, f.Last, f.LastTerm = log.Position()
	if f.Machine, err = o.replay(context.Background(), log); err != nil {
		return f, err
	}
	for _, r := range f.Machine.Directory().Groups {
		other, err := log.OpenGroup(r.Number)
		if err == nil {
			err = f.checkDivergence(other)
		}
		var g GroupFacts
		if err == nil {
			g, err = o.groupFacts(other, r)
		}
		if err != nil {
			return f, fmt.Errorf("group %q: %w", r.Name, err)
		}
		f.Groups = append(f.Groups, g)
	}
	return f, nil
}

// checkDivergence notes the divergence that is recorded in one of the logs. The error is that of reading it.
func (f *DirFacts) checkDivergence(log *raftlog.Log) error {
	err := replica.CheckDivergence(log)
	if errors.Is(err, ErrCorrupt) {
		f.Divergence = cmp.Or(f.Divergence, err)
		return nil
	}
	return err
}

func (o Offline) groupFacts(other *raftlog.Log, r *fact.GroupRecord) (f GroupFacts, err error) {
	f.Number, f.Name, f.Applied = r.Number, r.Name, other.Applied().Index
	hard, _, err := other.InitialState()
	if err != nil {
		return f, err
	}
	f.Commit = hard.GetCommit()
	_, f.Last, f.LastTerm = other.Position()
	f.Machine, err = o.groupMachine(context.Background(), other, r)
	return f, err
}
