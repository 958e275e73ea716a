package cluster

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// present is a member of a group with 7 and 9, as far as gossip sees them.
func present(t *testing.T) *Member {
	t.Helper()
	m := start(t, alone(t))
	t.Cleanup(m.Stop)
	m.members.set(&raftpb.ConfState{Voters: []uint64{m.identity.member, 7, 9}})
	return m
}

func (m *Member) say(member, boot uint64, alive bool) {
	meta := &wire.GossipMeta{Version: wire.GossipVersion, Cluster: m.identity.get().GetCluster(), Member: member, Boot: boot}
	m.gossip.mu.Lock()
	if alive {
		m.gossip.seen[processName(meta)] = meta
	} else {
		delete(m.gossip.seen, processName(meta))
	}
	m.gossip.mu.Unlock()
	if !alive {
		m.lost(meta)
	}
}

func (m *Member) wantPresence(t *testing.T, want Presence) {
	t.Helper()
	for _, p := range m.Presence() {
		if p.Member == want.Member {
			if p != want {
				t.Fatalf("%+v, not %+v", p, want)
			}
			return
		}
	}
	t.Fatalf("no word of %d", want.Member)
}

// A member is alive as long as any start of it is; what was never seen is not
// dead; what was seen to end stays dead until a start of it is seen.
func TestPresence(t *testing.T) {
	m := present(t)
	m.wantPresence(t, Presence{Member: m.identity.member, Boot: 1, Alive: true})
	m.wantPresence(t, Presence{Member: 7})
	m.say(7, 4, true)
	m.wantPresence(t, Presence{Member: 7, Boot: 4, Alive: true})
	m.say(7, 5, true)
	m.say(7, 4, false)
	m.wantPresence(t, Presence{Member: 7, Boot: 5, Alive: true})
	m.say(7, 5, false)
	m.wantPresence(t, Presence{Member: 7, Boot: 5, Dead: true})
	m.say(7, 6, true)
	m.wantPresence(t, Presence{Member: 7, Boot: 6, Alive: true})
	m.wantPresence(t, Presence{Member: 9})
}

// Strangers, and members of other groups that go by the same number, are not
// spoken of.
func TestPresenceOfStrangers(t *testing.T) {
	m := present(t)
	m.say(8, 1, false)
	m.lost(&wire.GossipMeta{Cluster: []byte("another"), Member: 7, Boot: 9})
	m.wantPresence(t, Presence{Member: 7})
	for _, p := range m.Presence() {
		if p.Member == 8 {
			t.Fatalf("%+v is no member", p)
		}
	}
}

// Who is heard on a connection is not dead, whatever gossip has heard of him; and
// when the connection breaks, that is told.
func TestWhoIsHeardIsNotDead(t *testing.T) {
	changes := make(chan struct{}, 10)
	cfg := alone(t)
	cfg.PresenceChanged = func() { changes <- struct{}{} }
	m := start(t, cfg)
	t.Cleanup(m.Stop)
	m.members.set(&raftpb.ConfState{Voters: []uint64{m.identity.member, 7}})
	m.PeerConnected(7, "", "")
	m.say(7, 4, true)
	m.say(7, 4, false)
	m.wantPresence(t, Presence{Member: 7, Boot: 4})
	for len(changes) > 0 {
		<-changes
	}
	m.PeerLost(7)
	if len(changes) != 1 {
		t.Fatalf("told %d times that the connection has broken", len(changes))
	}
	m.wantPresence(t, Presence{Member: 7, Boot: 4, Dead: true})
}
