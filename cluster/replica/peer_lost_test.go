package replica

import (
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// follower returns the core of member 1 of three, which follows member 2 in term 5.
func follower(t *testing.T) *core.Core {
	t.Helper()
	store, err := storage.Open(storage.Options{Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	log, err := raftlog.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Bootstrap(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}); err != nil {
		t.Fatal(err)
	}
	c, err := core.New(core.Config{
		ID: 1, Incarnation: wire.ID{1}, Log: log, Machine: machine.New(), Tick: 20 * time.Millisecond, ElectionTicks: 5,
		Rand: rand.New(rand.NewPCG(1, 1)), Logger: alone().Logger, Keep: 1000, KeepBytes: 8 << 20, MaxCalls: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Receive(2, heartbeat()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Take(0); err != nil || c.Status().Leader != 2 {
		t.Fatalf("led by %d, %v", c.Status().Leader, err)
	}
	return c
}

func heartbeat() *raftpb.Message {
	return &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(5))}
}

// What a leader sent before its connection broke does not restore it: the member would wait for
// the election timeout before it campaigns.
func TestPeerLost_AfterFramesOfItsConnection(t *testing.T) {
	cfg := alone()
	cfg.Lifetime = t.Context()
	r := &Replica{
		Requests: Requests{mailbox: wait.NewMailbox[event]()}, Acknowledged: new(Acknowledged),
		cfg: cfg, log: cfg.Logger, core: follower(t), received: newReceived(new(ReceivedBytes)),
	}
	body, err := proto.Marshal(heartbeat())
	if err != nil {
		t.Fatal(err)
	}
	r.Frame(2, &wire.Frame{Body: &wire.Frame_Raft{Raft: body}})
	r.PeerLost(2)
	for _, e := range r.mailbox.Fetch() { // as the loop does
		e.run(r.core)
	}
	r.drain()
	if _, err := r.core.Take(0); err != nil {
		t.Fatal(err)
	}
	if leader := r.core.Status().Leader; leader != 0 {
		t.Errorf("led by %d, whose connection has broken", leader)
	}
}
