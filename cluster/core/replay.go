package core

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/raftlog"
)

// Replay applies to a machine, which was loaded from the log's state, the entries of the
// log behind that state, whether they are known to be committed or not. more is asked
// before each entry; its error ends the replay.
func Replay(log *raftlog.Log, m Machine, more func() error) error {
	for _, e := range log.Unapplied() {
		if err := more(); err != nil {
			return err
		}
		if e.GetType() != raftpb.EntryNormal {
			continue // the machine does not know of membership changes
		}
		if err := replay(e, m); err != nil {
			return fmt.Errorf("applying entry %d: %w", e.GetIndex(), err)
		}
	}
	return nil
}

func replay(e *raftpb.Entry, m Machine) (err error) {
	batch := e.GetData()
	if len(batch) > 0 {
		if batch, err = parseEntry(batch); err != nil {
			return err
		}
	}
	m.Apply(e.GetIndex(), e.GetTerm(), batch)
	if agreed, supported := m.Level(); agreed > supported {
		return fmt.Errorf("%w: the group's feature level is %d, this build supports up to %d", ErrUpgradeRequired, agreed, supported)
	}
	return nil
}
