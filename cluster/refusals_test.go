package cluster

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/transport"
)

// What a refusal does to the process that it reaches. It stops for forgotten entries at
// the word of one member, and for a later start at that of a majority of the voters.
func TestRefused_StopsProcess(t *testing.T) {
	const us, standby, stranger = 1, 4, 9
	conf := &raftpb.ConfState{Voters: []uint64{us, 2, 3}, Learners: []uint64{standby}}
	type refusal struct {
		by     uint64 // 0: the last one accepts this member again
		reason transport.Reason
	}
	for _, test := range []struct {
		name     string
		refusals []refusal
		stops    error
	}{
		{"forgotten entries, by a voter", []refusal{{2, transport.ReasonForgot}}, ErrForgot},
		{"forgotten entries, by a standby", []refusal{{standby, transport.ReasonForgot}}, ErrForgot},
		{"a later start, by a voter", []refusal{{2, transport.ReasonRollback}}, nil},
		{"a later start, by a voter, repeatedly", []refusal{{2, transport.ReasonRollback}, {2, transport.ReasonRollback}}, nil},
		{"a later start, by a voter and a standby", []refusal{{2, transport.ReasonRollback}, {standby, transport.ReasonRollback}}, nil},
		{"a later start, by a voter and a stranger", []refusal{{2, transport.ReasonRollback}, {stranger, transport.ReasonRollback}}, nil},
		{"a later start, by both others", []refusal{{2, transport.ReasonRollback}, {3, transport.ReasonRollback}}, ErrCorrupt},
		{"a later start, by one that has accepted it since", []refusal{{2, transport.ReasonRollback}, {0, ""}, {3, transport.ReasonRollback}}, nil},
		{"a later start and a removal, by one each", []refusal{{2, transport.ReasonRollback}, {3, transport.ReasonRemoved}}, nil},
		{"a copy, by both others", []refusal{{2, transport.ReasonClone}, {3, transport.ReasonClone}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var all refusals
			var err error // the first
			last := uint64(0)
			for _, r := range test.refusals {
				if r.by == 0 {
					all.remove(last)
					continue
				}
				err = cmp.Or(err, all.stops(us, conf.GetVoters(), r.by, &transport.RefusedError{Member: r.by, Reason: r.reason, Detail: "why"}))
				last = r.by
			}
			if !errors.Is(err, test.stops) || err != nil && !strings.Contains(err.Error(), "why") {
				t.Errorf("stopped with %v, want %v", err, test.stops)
			}
		})
	}
}
