package cluster

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/transport"
)

// A member may be removed while the transport or gossip is about to report it. It is not
// dialled afterwards.
func TestRemoval_RemovedMemberIsNotDialled(t *testing.T) {
	m := start(t, alone(t))
	defer m.Stop()
	const removed = 7
	m.PeerConnected(removed, "127.0.0.1:1", "removed")
	if err := m.port.PeerError(removed); !errors.Is(err, transport.ErrUnknownPeer) {
		t.Errorf("dialled after it has connected: %v", err)
	}
	m.connections.dial(removed, "127.0.0.1:2")
	if err := m.port.PeerError(removed); !errors.Is(err, transport.ErrUnknownPeer) {
		t.Errorf("dialled after gossip has shown it: %v", err)
	}
}

// The only voter cannot leave.
func TestRemoval_LastVoter(t *testing.T) {
	m := start(t, alone(t))
	defer m.Stop()
	if err := m.replica.Read(t.Context(), func(Machine) {}); err != nil { // it leads then
		t.Fatal(err)
	}
	if err := m.Removals().CheckLeave(); !errors.Is(err, ErrLastVoter) {
		t.Errorf("CheckLeave: %v", err)
	}
}

// A member stops when its own log contains its removal and a remaining voter confirms it,
// or when a majority of the voters that it last knew refuse it. A standby's refusal, and
// that of a member it does not know, never count.
func TestRemoval_Confirmed(t *testing.T) {
	const us = 1
	conf := func(voters ...uint64) *raftpb.ConfState { return &raftpb.ConfState{Voters: voters} }
	withStandby := conf(2, 3, 4)
	withStandby.Learners = []uint64{us, 5}
	for _, test := range []struct {
		name             string
		conf             *raftpb.ConfState
		removed          []uint64
		refusers         []uint64
		confirmed, inLog bool
	}{
		{"one of three, a single peer claims it", conf(us, 2, 3), nil, []uint64{2}, false, false},
		{"one of three, both others", conf(us, 2, 3), nil, []uint64{2, 3}, true, false},
		{"one of five, two others", conf(us, 2, 3, 4, 5), nil, []uint64{2, 3}, false, false},
		{"one of five, three others", conf(us, 2, 3, 4, 5), nil, []uint64{2, 3, 4}, true, false},
		{"one of four, two others", conf(us, 2, 3, 4), nil, []uint64{2, 3}, false, false},
		{"one of four, three others", conf(us, 2, 3, 4), nil, []uint64{2, 3, 4}, true, false},
		{"one of two, the other", conf(us, 2), nil, []uint64{2}, true, false},
		{"one of two, none", conf(us, 2), []uint64{us}, nil, false, false},
		{"the only voter", conf(us), nil, []uint64{2}, false, false},
		{"strangers", conf(us, 2, 3), nil, []uint64{7, 8, 9}, false, false},
		{"noted and still a voter, a single peer", conf(us, 2, 3), []uint64{us}, []uint64{2}, false, false},
		{"demoted, a single peer", withStandby, []uint64{us}, []uint64{2}, true, true},
		{"demoted, a peer and a standby", withStandby, []uint64{us}, []uint64{2, 5}, true, true},
		{"demoted, a standby", withStandby, []uint64{us}, []uint64{5}, false, true},
		{"demoted, a majority", withStandby, []uint64{us}, []uint64{2, 3}, true, true},
		{"in its log, none", conf(2, 3, 4), []uint64{us}, nil, false, true},
		{"in its log, one voter", conf(2, 3, 4), []uint64{us}, []uint64{4}, true, true},
		{"in its log, a stranger", conf(2, 3, 4), []uint64{us}, []uint64{5}, false, true},
	} {
		confirmed, inLog := removalOf(us, test.conf, test.removed, test.refusers)
		if confirmed != test.confirmed || inLog != test.inLog {
			t.Errorf("%s: confirmed %t, in its log %t", test.name, confirmed, inLog)
		}
	}
}
