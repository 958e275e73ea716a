package cluster

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/internal/wire"
)

// Gossip may declare a member dead by mistake: while a connection from it is open, that is no death.
func TestDeaths_NotWhileConnected(t *testing.T) {
	withRoster(t, func(r *roster.Roster) {
		conf := &raftpb.ConfState{Voters: []uint64{1, 7, 9}}
		r.SetMembership(conf)
		var alive []bool
		d := deaths{self: 1, changed: func(p Peer) { alive = append(alive, p.Alive) }}
		meta := &wire.GossipMeta{Cluster: []byte("cluster"), Member: 7, Boot: 1, Name: "seven", Advertise: "seven"}
		for _, change := range []func(){
			func() { r.ProcessAlive(wire.ProcessName(7, 1), meta) },
			func() { r.Connected(7, "seven", "seven") },
			func() { r.ProcessDead(wire.ProcessName(7, 1), meta) },
		} {
			change()
			if d.note(conf, r.Snapshot()); len(alive) > 0 {
				t.Fatal("a death, and the connection is open")
			}
		}
		r.Disconnected(7)
		d.note(conf, r.Snapshot())
		r.ProcessAlive(wire.ProcessName(7, 1), meta)
		d.note(conf, r.Snapshot())
		if !slices.Equal(alive, []bool{false, true}) {
			t.Errorf("%v, want a death and a return", alive)
		}
	})
}
