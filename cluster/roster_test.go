package cluster

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

const self = 1

// rosterOf returns the roster of member 1 in a group with the others.
func rosterOf(t *testing.T, log *raftlog.Log, others ...uint64) *roster {
	t.Helper()
	meta := &wire.GossipMeta{Version: wire.GossipVersion, Member: self, Boot: 1}
	r, err := loadRoster(log, meta, func() []byte { return []byte("cluster") })
	if err != nil {
		t.Fatal(err)
	}
	r.setMembership(&raftpb.ConfState{Voters: append([]uint64{self}, others...)})
	return r
}

func withRoster(t *testing.T, use func(*roster)) {
	t.Helper()
	withLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) { use(rosterOf(t, log, 7, 9)) })
}

func process(member, boot uint64, addr string) *wire.GossipMeta {
	return &wire.GossipMeta{Version: wire.GossipVersion, Cluster: []byte("cluster"), Member: member, Boot: boot, Advertise: addr}
}

func (r *roster) alive(member, boot uint64) {
	meta := process(member, boot, "")
	r.processAlive(wire.ProcessName(meta.GetMember(), meta.GetBoot()), meta)
}

func (r *roster) dead(member, boot uint64) {
	meta := process(member, boot, "")
	r.processDead(wire.ProcessName(meta.GetMember(), meta.GetBoot()), meta)
}

func (r *roster) want(t *testing.T, id, boot uint64, l liveness) {
	t.Helper()
	for _, m := range r.snapshot().members {
		if m.id == id {
			if m.boot != boot || m.liveness != l {
				t.Fatalf("%+v, want boot %d, liveness %d", m, boot, l)
			}
			return
		}
	}
	t.Fatalf("member %d is not in the roster", id)
}

// A member is alive as long as one of its processes is; a process never seen is not
// dead; after a death the member stays dead until gossip shows another process.
func TestRoster_Liveness(t *testing.T) {
	withRoster(t, func(r *roster) {
		r.want(t, self, 1, alive)
		r.want(t, 7, 0, unseen)
		r.alive(7, 4)
		r.want(t, 7, 4, alive)
		r.alive(7, 5)
		r.dead(7, 4)
		r.want(t, 7, 5, alive)
		r.dead(7, 5)
		r.want(t, 7, 5, dead)
		r.alive(7, 6)
		r.want(t, 7, 6, alive)
		r.want(t, 9, 0, unseen)
	})
}

// Processes of strangers, and of members of another cluster with the same ID, do not
// count.
func TestRoster_StrangersDoNotCount(t *testing.T) {
	withRoster(t, func(r *roster) {
		r.dead(8, 1)
		other := process(7, 9, "elsewhere:1")
		other.Cluster = []byte("another")
		r.processAlive("other", other)
		r.want(t, 7, 0, unseen)
		r.processDead("other", other)
		r.want(t, 7, 0, unseen)
		if s := r.snapshot(); s.has(8) || len(s.peers) > 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// A death does not count while a connection from the member is up; when it breaks, the
// roster has changed.
func TestRoster_ConnectedMemberIsNotDead(t *testing.T) {
	withRoster(t, func(r *roster) {
		r.connected(7, "", "")
		r.alive(7, 4)
		r.dead(7, 4)
		r.want(t, 7, 4, unseen)
		<-r.changed
		r.disconnected(7)
		if len(r.changed) != 1 {
			t.Fatal("a broken connection is no change")
		}
		r.want(t, 7, 4, dead)
	})
}

// A snapshot stays as it is when the roster changes.
func TestRoster_SnapshotIsImmutable(t *testing.T) {
	withRoster(t, func(r *roster) {
		before := r.snapshot()
		r.alive(7, 4)
		r.setMembership(&raftpb.ConfState{Voters: []uint64{self}, Learners: []uint64{9}})
		if len(before.members) != 3 || before.isAlive(7) || len(before.processes) > 0 {
			t.Errorf("before: %+v", before)
		}
		if after := r.snapshot(); len(after.members) != 2 || after.has(7) || after.members[1].voter {
			t.Errorf("after: %+v", after)
		}
	})
}

// A quorum is a majority of the voters: standbys do not count.
func TestRoster_Quorum(t *testing.T) {
	withRoster(t, func(r *roster) {
		r.setMembership(&raftpb.ConfState{Voters: []uint64{self, 7, 9}, Learners: []uint64{10, 11}})
		for _, step := range []struct {
			member uint64
			want   bool
		}{{10, false}, {11, false}, {7, true}, {9, true}} {
			r.alive(step.member, 1)
			if got := r.snapshot().hasQuorum(); got != step.want {
				t.Errorf("with %d alive: quorum %t", step.member, got)
			}
		}
	})
}

// Gossip may have seen no other member yet, when the members have a leader already.
func TestRoster_QuorumBeforeGossip(t *testing.T) {
	withRoster(t, func(r *roster) {
		r.setMembership(&raftpb.ConfState{Voters: []uint64{self, 7, 9}})
		want := func(what string, leader uint64, want bool) {
			t.Helper()
			if got := r.snapshot().mayHaveQuorum(leader); got != want {
				t.Errorf("%s: quorum %t", what, got)
			}
		}
		want("no leader", 0, false)
		want("leader not seen by gossip", 7, true)
		want("this member leads", self, true)
		r.alive(7, 1)
		r.dead(7, 1)
		want("leader dead", 7, false)
		want("this member leads, one is dead", self, true)
		r.alive(9, 1)
		r.dead(9, 1)
		want("this member leads, the others are dead", self, false)
	})
}

// What gossip has shown before the member is admitted counts from then on.
func TestRoster_NewMemberKnownFromGossip(t *testing.T) {
	withRoster(t, func(r *roster) {
		meta := process(8, 2, "eight:1")
		if r.processAlive("eight", meta) {
			t.Error("the address of a stranger is noted")
		}
		r.setMembership(&raftpb.ConfState{Voters: []uint64{self, 8}})
		r.want(t, 8, 2, alive)
		if peers := r.snapshot().peers; len(peers) != 1 || peers[0].GetAdvertise() != "eight:1" {
			t.Errorf("addresses: %v", peers)
		}
	})
}

// The latest process of a member determines its address, in whatever order gossip
// shows them; a proved process counts more than what gossip claims.
func TestRoster_LatestProcessDeterminesAddress(t *testing.T) {
	disk := vfs.NewCrashableMem()
	addr := func(r *roster, member uint64) string {
		for _, p := range r.snapshot().peers {
			if p.GetMember() == member {
				return p.GetAdvertise()
			}
		}
		return ""
	}
	withLog(t, disk, func(log *raftlog.Log) {
		r := rosterOf(t, log, 7, 9)
		for _, step := range []struct {
			boot  uint64
			addr  string
			moved bool
			want  string
		}{
			{3, "a", true, "a"},
			{3, "a", false, "a"},
			{2, "old", false, "a"},
			{3, "b", true, "b"},
			{4, "b", false, "b"},
			{3, "a", false, "b"},
			{5, "c", true, "c"},
		} {
			if moved := r.processAlive("p", process(7, step.boot, step.addr)); moved != step.moved {
				t.Errorf("%+v: moved %t", step, moved)
			}
			if got := addr(r, 7); got != step.want {
				t.Errorf("%+v: address %q", step, got)
			}
		}
		r.bootChanged(7, 10)
		r.bootChanged(7, 9) // of the registered process
		if r.processAlive("p", process(7, 8, "late")) {
			t.Error("an earlier process changes the address")
		}
		r.processAlive("q", process(9, 1<<60, "claimed"))
		if !r.connected(9, "", "proved") {
			t.Error("a proved address is not taken")
		}
	})
	withLog(t, disk, func(log *raftlog.Log) {
		r := rosterOf(t, log, 7, 9)
		if addr(r, 7) != "c" || addr(r, 9) != "proved" || r.boots()[7] != 9 || r.boots()[9] != 0 {
			t.Errorf("after a restart: %v", r.snapshot().peers)
		}
	})
}

func TestRoster_DamagedRecord(t *testing.T) {
	withLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) {
		if err := log.SetLocal(peerRecord+"1", []byte{0xff}); err != nil {
			t.Fatal(err)
		}
		if _, err := loadRoster(log, process(self, 1, ""), func() []byte { return nil }); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%v", err)
		}
	})
}

// forget removes all processes that gossip has shown.
func (r *roster) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.processes)
	r.refresh()
}

// A process that belongs to the group no more leaves no record, in memory or on the disk.
func TestRoster_Retain(t *testing.T) {
	withRoster(t, func(r *roster) {
		r.connected(7, "seven", "seven:1")
		r.setFounder(&wire.Founder{Member: 9, Advertise: "nine:1"})
		r.retain(func(id uint64) bool { return id == 7 })
		if s := r.snapshot(); s.peer(9) != nil || s.peer(7) == nil {
			t.Errorf("kept %v", s.peers)
		}
		if err := r.log.SetLocal("another", []byte{1}); err != nil { // waits for the writes before
			t.Error(err)
		}
		records, err := r.log.Locals(peerRecord)
		if err != nil || len(records) != 1 {
			t.Errorf("on disk %d, %v", len(records), err)
		}
	})
}
