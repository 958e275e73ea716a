package cluster

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/roster"
)

// deaths notes which members this one's failure detector declares dead, and which are alive again. It is owned by
// the replica's loop.
type deaths struct {
	self     uint64
	changed  func(Peer) // nil: ignored
	lastSeen map[uint64]bool
}

// note reports changes since the last call. Before this member has seen another one alive, it has not noticed a death.
// It runs in each tick, as the failure detector's view changes at any time.
func (d *deaths) note(conf *raftpb.ConfState, seen *roster.Snapshot) {
	if d.changed == nil {
		return
	}
	members := core.MembersOf(conf)
	for _, id := range members {
		was, known := d.lastSeen[id]
		is := seen.IsAlive(id)
		if id == d.self || is == was || !is && !seen.IsDead(id) {
			continue
		}
		if d.lastSeen == nil {
			d.lastSeen = make(map[uint64]bool)
		}
		d.lastSeen[id] = is
		if known {
			p := seen.Peer(id)
			d.changed(Peer{ID: id, Name: p.GetName(), Addr: p.GetAdvertise(), Alive: is, Voter: slices.Contains(conf.GetVoters(), id)})
		}
	}
	for id := range d.lastSeen {
		if !slices.Contains(members, id) {
			delete(d.lastSeen, id)
		}
	}
}
