package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/memberlist"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/gossip"
	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/internal/wire"
)

// An event of gossip is encoded as a mark, the length of the meta data, and the meta
// data. The bits of the mark are:
const (
	isDeath       = 1 << iota // the process is dead, else alive
	ofThisMember              // the meta data has this member's ID
	ofThisCluster             // and its cluster
	otherProcess              // and all bits above: the name of the process
)

// deliver passes encoded events to the delegate of gossip, as memberlist would.
func deliver(g *gossip.Gossip, in []byte, member uint64, cluster []byte) {
	for len(in) >= 2 {
		mark, n := in[0], min(int(in[1]), len(in)-2)
		meta := new(wire.GossipMeta)
		body := in[2 : 2+n]
		in = in[2+n:]
		if mark&(ofThisMember|ofThisCluster) != 0 && proto.Unmarshal(body, meta) == nil {
			if mark&ofThisMember != 0 {
				meta.Member = member
			}
			if mark&ofThisCluster != 0 {
				meta.Cluster = cluster
			}
			if altered, err := proto.Marshal(meta); err == nil {
				body = altered
			}
		}
		node := &memberlist.Node{Name: fmt.Sprint("process-", mark/otherProcess), Meta: body}
		if mark&isDeath != 0 {
			g.NotifyLeave(node)
		} else {
			g.NotifyJoin(node)
		}
	}
}

func gossipEvent(tb testing.TB, mark byte, meta *wire.GossipMeta) []byte {
	tb.Helper()
	body, err := proto.Marshal(meta)
	if err != nil {
		tb.Fatal(err)
	}
	return append([]byte{mark, byte(len(body))}, body...)
}

// FuzzGossip: with any events of gossip, the roster of a member of a group has the
// group's members and addresses only, and the member forms no other group.
func FuzzGossip(f *testing.F) {
	for _, seed := range [][]byte{
		gossipEvent(f, ofThisCluster, &wire.GossipMeta{Version: 1, Member: 7, Boot: 3, Name: "seven", Advertise: "127.0.0.1:7"}),
		gossipEvent(f, ofThisCluster|isDeath, &wire.GossipMeta{Version: 1, Member: 7, Boot: 1<<64 - 1}),
		gossipEvent(f, ofThisMember|ofThisCluster, &wire.GossipMeta{Version: 1, Boot: 1 << 60, Advertise: "elsewhere:1"}),
		gossipEvent(f, 0, &wire.GossipMeta{Version: 1, Member: 8, Boot: 1, Expect: 1}),
		gossipEvent(f, ofThisMember, &wire.GossipMeta{Version: 1, Expect: 1}),
		gossipEvent(f, 0, &wire.GossipMeta{Version: 2, Member: 7}),
		{0, 3, 0xff, 0xff, 0xff},
	} {
		f.Add(seed)
		f.Add(append(seed, gossipEvent(f, otherProcess|ofThisCluster, &wire.GossipMeta{Version: 1, Member: 9, Boot: 2, Advertise: ":0"})...))
	}
	var once sync.Once
	var m *Member
	f.Cleanup(func() {
		if m != nil {
			m.Stop()
		}
	})
	f.Fuzz(func(t *testing.T, in []byte) {
		once.Do(func() { m = startUnconnected(t) })
		us := m.identity.Member
		group := []uint64{us, 7, 9}
		deliver(m.gossip, in, us, m.identity.Get().GetCluster())
		for _, p := range m.roster.Snapshot().Peers {
			if !slices.Contains(group, p.GetMember()) {
				t.Fatalf("keeps the address of a stranger: %v", p)
			}
		}
		members := m.roster.Snapshot().Members
		for _, p := range members {
			if !slices.Contains(group, p.ID) || p.ID == us && p.Liveness != roster.Alive {
				t.Fatalf("roster has %+v", p)
			}
		}
		if len(members) != len(group) {
			t.Fatalf("roster has %d members", len(members))
		}
		other := &wire.Proposal{Cluster: bytes.Repeat([]byte{7}, 16), Founders: []*wire.Founder{wire.FounderOf(m.meta())}, Voters: 1}
		if reply := m.Form(&wire.FormRequest{Candidate: m.meta(), Proposal: other}); !reply.GetFinal() {
			t.Fatalf("would form another group: %v", reply)
		}
		stranger, _ := proto.Marshal(&wire.GossipMeta{Version: 1, Member: 1}) // whose death says nothing of a member
		for i := range 256 / otherProcess {
			m.gossip.NotifyLeave(&memberlist.Node{Name: fmt.Sprint("process-", i), Meta: stranger})
		}
	})
}

// startUnconnected starts a member of a group with 7 and 9 that cannot dial.
func startUnconnected(t *testing.T) *Member {
	cfg := alone(t)
	cfg.Dial = func(context.Context, string) (net.Conn, error) { return nil, errors.New("no dialing in this test") }
	m := start(t, cfg)
	m.roster.SetMembership(&raftpb.ConfState{Voters: []uint64{m.identity.Member, 7, 9}})
	return m
}
