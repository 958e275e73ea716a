package raftlog

import "go.etcd.io/raft/v3/raftpb"

// writeState is the storage goroutine's half of the log: what the next write has
// to fit. Entries are represented by their positions only.
type writeState struct {
	hard        *raftpb.HardState
	applied     Applied
	truncated   position
	positions   []position // positions[i].index == truncated.index+1+i
	generation  uint64     // of the installed state
	generations uint64     // the largest number assigned to a stage
	erased      bool       // see Erase
}

// empty reports whether there is neither a log nor a term or vote of a group.
func (s *writeState) empty() bool {
	return s.hard == nil && s.applied == Applied{} && s.last() == position{}
}

func (s *writeState) last() position {
	if len(s.positions) == 0 {
		return s.truncated
	}
	return s.positions[len(s.positions)-1]
}

// at returns the position of an entry in the log, or of the truncated entry.
func (s *writeState) at(index uint64) (position, bool) {
	switch {
	case index == s.truncated.index:
		return s.truncated, true
	case index < s.truncated.index || index > s.last().index:
		return position{}, false
	}
	return s.positions[index-s.truncated.index-1], true
}

// verify checks the invariants that raft relies on and that hold between
// records: the log ends at or after what is applied and committed, in no later
// term than the current one, and contains the applied entry.
func (s *writeState) verify() error {
	last := s.last()
	switch a := s.applied; {
	case a.Index < s.truncated.index, a.Index > last.index:
		return corruptf("applied index %d outside of the log, which has entries %d to %d", a.Index, s.truncated.index+1, last.index)
	case s.hard.GetCommit() > last.index:
		return corruptf("commit index %d beyond the end of the log at %d", s.hard.GetCommit(), last.index)
	case s.hard.GetTerm() < last.term:
		return corruptf("current term %d, but the log ends in term %d", s.hard.GetTerm(), last.term)
	}
	if p, _ := s.at(s.applied.Index); p.term != s.applied.Term {
		return corruptf("applied entry %d: want term %d, got %d in the log", s.applied.Index, s.applied.Term, p.term)
	}
	return nil
}
