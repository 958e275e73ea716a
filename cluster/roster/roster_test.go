package roster

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// useLog calls use with a log on the disk.
func useLog(t *testing.T, disk *vfs.MemFS, use func(*raftlog.Log)) {
	t.Helper()
	store, err := storage.Open(storage.Options{FS: disk, Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log, err := raftlog.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	use(log)
}

const self = 1

// loadedRoster returns the roster of member 1 in a group with the others.
func loadedRoster(t *testing.T, log *raftlog.Log, others ...uint64) *Roster {
	t.Helper()
	meta := &wire.GossipMeta{Version: wire.GossipVersion, Member: self, Boot: 1}
	r, err := Load(log, meta, func() []byte { return []byte("cluster") })
	if err != nil {
		t.Fatal(err)
	}
	r.SetMembership(&raftpb.ConfState{Voters: append([]uint64{self}, others...)})
	return r
}

func useRoster(t *testing.T, use func(*Roster)) {
	t.Helper()
	useLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) { use(loadedRoster(t, log, 7, 9)) })
}

func process(member, boot uint64, addr string) *wire.GossipMeta {
	return &wire.GossipMeta{Version: wire.GossipVersion, Cluster: []byte("cluster"), Member: member, Boot: boot, Advertise: addr}
}

func (r *Roster) alive(member, boot uint64) {
	meta := process(member, boot, "")
	r.ProcessAlive(wire.ProcessName(meta.GetMember(), meta.GetBoot()), meta)
}

func (r *Roster) dead(member, boot uint64) {
	meta := process(member, boot, "")
	r.ProcessDead(wire.ProcessName(meta.GetMember(), meta.GetBoot()), meta)
}

func (r *Roster) want(t *testing.T, id, boot uint64, l Liveness) {
	t.Helper()
	for _, m := range r.Snapshot().Members {
		if m.ID == id {
			if m.boot != boot || m.Liveness != l {
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
	useRoster(t, func(r *Roster) {
		r.want(t, self, 1, Alive)
		r.want(t, 7, 0, Unseen)
		r.alive(7, 4)
		r.want(t, 7, 4, Alive)
		r.alive(7, 5)
		r.dead(7, 4)
		r.want(t, 7, 5, Alive)
		r.dead(7, 5)
		r.want(t, 7, 5, dead)
		r.alive(7, 6)
		r.want(t, 7, 6, Alive)
		r.want(t, 9, 0, Unseen)
	})
}

// Processes of strangers, and of members of another cluster with the same ID, do not
// count.
func TestRoster_StrangersDoNotCount(t *testing.T) {
	useRoster(t, func(r *Roster) {
		r.dead(8, 1)
		other := process(7, 9, "elsewhere:1")
		other.Cluster = []byte("another")
		r.ProcessAlive("other", other)
		r.want(t, 7, 0, Unseen)
		r.ProcessDead("other", other)
		r.want(t, 7, 0, Unseen)
		if s := r.Snapshot(); s.Has(8) || len(s.Peers) > 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// What strangers gossip wakes no failure detector: in each group that a member leads it would read, and a quiet group would wake for that.
func TestRoster_StrangersWakeNone(t *testing.T) {
	useRoster(t, func(r *Roster) {
		changed, stop := r.Watch()
		defer stop()
		other := process(7, 9, "elsewhere:1")
		other.Cluster = []byte("another")
		for name, stranger := range map[string]func(){
			"alive": func() { r.alive(8, 1) }, "dead": func() { r.dead(8, 1) },
			"of another cluster": func() { r.ProcessAlive("other", other); r.ProcessDead("other", other) },
		} {
			if stranger(); len(changed) != 0 {
				t.Fatalf("%s: the watchers are woken", name)
			}
		}
		for n, member := range []func(){
			func() { r.alive(7, 4) }, func() { r.alive(7, 5) }, func() { r.dead(7, 4); r.dead(7, 5) },
			func() { r.SetMembership(&raftpb.ConfState{Voters: []uint64{self, 7, 8}}) }, func() { r.Disconnected(7) },
		} {
			if member(); len(changed) != 1 {
				t.Fatalf("the watchers are not woken by change %d of a member", n)
			}
			<-changed
		}
	})
}

// A death does not count while a connection from the member is up; when it breaks, the
// roster has changed.
func TestRoster_ConnectedMemberIsNotDead(t *testing.T) {
	useRoster(t, func(r *Roster) {
		r.Connected(7, "", "")
		r.alive(7, 4)
		r.dead(7, 4)
		r.want(t, 7, 4, Unseen)
		changed, stop := r.Watch()
		defer stop()
		r.Disconnected(7)
		if len(changed) != 1 {
			t.Fatal("a broken connection is no change")
		}
		r.want(t, 7, 4, dead)
	})
}

// A snapshot stays as it is when the roster changes.
func TestRoster_SnapshotIsImmutable(t *testing.T) {
	useRoster(t, func(r *Roster) {
		before := r.Snapshot()
		r.alive(7, 4)
		r.SetMembership(&raftpb.ConfState{Voters: []uint64{self}, Learners: []uint64{9}})
		if len(before.Members) != 3 || before.IsAlive(7) {
			t.Errorf("before: %+v", before)
		}
		if after := r.Snapshot(); len(after.Members) != 2 || after.Has(7) || after.Members[1].Voter {
			t.Errorf("after: %+v", after)
		}
	})
}

// A quorum is a majority of the voters: standbys do not count.
func TestRoster_Quorum(t *testing.T) {
	useRoster(t, func(r *Roster) {
		r.SetMembership(&raftpb.ConfState{Voters: []uint64{self, 7, 9}, Learners: []uint64{10, 11}})
		for _, step := range []struct {
			member uint64
			want   bool
		}{{10, false}, {11, false}, {7, true}, {9, true}} {
			r.alive(step.member, 1)
			if got := r.Snapshot().HasQuorum(); got != step.want {
				t.Errorf("with %d alive: quorum %t", step.member, got)
			}
		}
	})
}

// Gossip may have seen no other member yet, when the members have a leader already.
func TestRoster_QuorumBeforeGossip(t *testing.T) {
	useRoster(t, func(r *Roster) {
		r.SetMembership(&raftpb.ConfState{Voters: []uint64{self, 7, 9}})
		want := func(what string, leader uint64, want bool) {
			t.Helper()
			if got := r.Snapshot().MayHaveQuorum(leader); got != want {
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
	useRoster(t, func(r *Roster) {
		meta := process(8, 2, "eight:1")
		if r.ProcessAlive("eight", meta) {
			t.Error("the address of a stranger is noted")
		}
		r.SetMembership(&raftpb.ConfState{Voters: []uint64{self, 8}})
		r.want(t, 8, 2, Alive)
		if peers := r.Snapshot().Peers; len(peers) != 1 || peers[0].GetAdvertise() != "eight:1" {
			t.Errorf("addresses: %v", peers)
		}
	})
}

// The latest process of a member determines its address, in whatever order gossip
// shows them; a proved process counts more than what gossip claims.
func TestRoster_LatestProcessDeterminesAddress(t *testing.T) {
	disk := vfs.NewCrashableMem()
	addr := func(r *Roster, member uint64) string {
		for _, p := range r.Snapshot().Peers {
			if p.GetMember() == member {
				return p.GetAdvertise()
			}
		}
		return ""
	}
	useLog(t, disk, func(log *raftlog.Log) {
		r := loadedRoster(t, log, 7, 9)
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
			if moved := r.ProcessAlive("p", process(7, step.boot, step.addr)); moved != step.moved {
				t.Errorf("%+v: moved %t", step, moved)
			}
			if got := addr(r, 7); got != step.want {
				t.Errorf("%+v: address %q", step, got)
			}
		}
		r.BootChanged(7, 10)
		r.BootChanged(7, 9) // of the registered process
		if r.ProcessAlive("p", process(7, 8, "late")) {
			t.Error("an earlier process changes the address")
		}
		r.ProcessAlive("q", process(9, 1<<60, "claimed"))
		if !r.Connected(9, "", "proved") {
			t.Error("a proved address is not taken")
		}
	})
	useLog(t, disk, func(log *raftlog.Log) {
		r := loadedRoster(t, log, 7, 9)
		if addr(r, 7) != "c" || addr(r, 9) != "proved" || r.Boots()[7] != 9 || r.Boots()[9] != 0 {
			t.Errorf("after a restart: %v", r.Snapshot().Peers)
		}
	})
}

func TestRoster_DamagedRecord(t *testing.T) {
	useLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) {
		if err := log.SetLocal(peerRecord+"1", []byte{0xff}); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(log, process(self, 1, ""), func() []byte { return nil }); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%v", err)
		}
	})
}

// A process that belongs to the group no more leaves no record, in memory or on the disk.
func TestRoster_Retain(t *testing.T) {
	useRoster(t, func(r *Roster) {
		r.Connected(7, "seven", "seven:1")
		r.SetFounder(&wire.Founder{Member: 9, Advertise: "nine:1"})
		r.Retain(func(id uint64) bool { return id == 7 })
		if s := r.Snapshot(); s.Peer(9) != nil || s.Peer(7) == nil {
			t.Errorf("kept %v", s.Peers)
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

// The build of a member is that of its latest process, and remains known after its death. What a process states may be anything.
func TestRoster_Build(t *testing.T) {
	useRoster(t, func(r *Roster) {
		changes := 0
		r.Listed = func() { changes++ }
		for _, step := range []struct {
			boot        uint64
			build, want string
		}{
			{2, "v0.1.0", "v0.1.0"},
			{3, "v0.2.0", "v0.2.0"},
			{2, "v0.1.0", "v0.2.0"}, // gossip of a former process is late
			{4, "", ""},             // an older build, which states none
			{5, "v0.2.0\x1b[2J", ""},
			{6, "v0.3.0", "v0.3.0"},
		} {
			meta := process(7, step.boot, "")
			meta.Build = step.build
			before, listed := r.Snapshot().Build(7), changes
			r.ProcessAlive(wire.ProcessName(7, step.boot), meta)
			if got := r.Snapshot().Build(7); got != step.want {
				t.Errorf("boot %d states %q: %q, want %q", step.boot, step.build, got, step.want)
			}
			if r.Snapshot().Build(7) != before && changes == listed {
				t.Errorf("boot %d: not reported as a change", step.boot)
			}
		}
		r.dead(7, 6)
		if got := r.Snapshot().Build(7); got != "v0.3.0" {
			t.Errorf("after its death: %q", got)
		}
		if got := r.Snapshot().Build(9) + r.Snapshot().Build(11); got != "" {
			t.Errorf("of members that have stated none: %q", got)
		}
	})
}
