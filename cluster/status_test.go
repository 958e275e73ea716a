package cluster

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// A joint configuration needs a majority of both halves: what counts is the one that is nearest to its loss.
func TestWeakerHalf(t *testing.T) {
	replacement := &raftpb.ConfState{Voters: []uint64{1, 3, 4}, VotersOutgoing: []uint64{1, 2, 3}}
	for _, c := range []struct {
		conf                        *raftpb.ConfState
		up                          []uint64
		wantUp, wantOf, mayFailMore int
	}{
		{&raftpb.ConfState{}, []uint64{1}, 0, 0, -1},
		{&raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}, []uint64{1, 2, 4}, 2, 3, 0},
		{replacement, []uint64{1, 2, 3, 4}, 3, 3, 1},
		{replacement, []uint64{1, 3, 4}, 2, 3, 0},
		{replacement, []uint64{1, 4}, 1, 3, -1}, // of the voters before: 2 of 3 of those afterwards
		{replacement, []uint64{1, 2}, 1, 3, -1}, // of the voters afterwards
		{&raftpb.ConfState{Voters: []uint64{1, 2, 3}, VotersOutgoing: []uint64{1, 2}}, []uint64{1, 2}, 2, 3, 0},
	} {
		t.Run(fmt.Sprint(c.conf.GetVoters(), c.conf.GetVotersOutgoing(), c.up), func(t *testing.T) {
			up := func(id uint64) bool { return slices.Contains(c.up, id) }
			if n, of := weakerHalf(c.conf, up); n != c.wantUp || of != c.wantOf {
				t.Errorf("%d of %d voters are up; want %d of %d", n, of, c.wantUp, c.wantOf)
			}
			if n := redundancy(c.conf, up); n != c.mayFailMore {
				t.Errorf("redundancy %d; want %d", n, c.mayFailMore)
			}
		})
	}
}
