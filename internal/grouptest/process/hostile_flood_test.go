package process

import (
	"crypto/ed25519"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

// Connections that do nothing do not keep a member out.
func TestHostile_IdleConnections(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	g.members[1].kill()
	for _, p := range []*process{g.members[0], g.members[2]} {
		for range 128 {
			c, err := hostile.Dial(p.addr)
			mustSucceed(t, err)
			defer c.Close()
		}
	}
	g.restart(1)
	g.wantWorking(1)
	hostile.Attempt(t, "15", "hold 128 idle connections to each of two members while the third one restarts", "it connected, opened and acquired a lock")
}

// A stranger cannot use up the founders' acceptances.
func TestHostile_ProposalsWhileForming(t *testing.T) {
	t.Parallel()
	g := &processGroup{t: t, configs: make([]memberConfig, 3), members: make([]*process, 3)}
	var join []string
	for i := range g.members {
		g.members[i] = launch(t, "127.0.0.1:0")
		join = append(join, g.members[i].addr)
	}
	opened := make(chan struct{}, 3)
	open := func(i int) {
		g.configs[i] = memberConfig{Dir: t.TempDir(), Join: join, Expect: 3, TTL: 10 * time.Second}
		go func() { g.open(i, g.members[i]); opened <- struct{}{} }()
	}
	open(0)
	open(1)
	key := hostile.NewKey()
	founders := []*wire.Founder{founder(hostile.Hello(key, 0)), founder(helloOf(t, g.members[0]).Theirs), founder(helloOf(t, g.members[1]).Theirs)}
	for i := range 100 {
		reply := propose(t, g.members[i%2], key, founders)
		if i == 0 {
			hostile.Attempt(t, "16", "propose a group as a stranger to founders that wait for one more", "not accepted: %s", reply.GetRefusal())
		}
		if reply.GetAccepted() || reply.GetFinal() {
			t.Fatalf("a stranger's proposal was answered with %v", reply)
		}
	}
	open(2)
	for range 3 {
		<-opened
	}
	g.wantWorking(2)
	hostile.Attempt(t, "16", "use up the founders' acceptances by 100 proposals", "the group formed without the stranger, and works")
}

func founder(h *wire.Hello) *wire.Founder {
	return &wire.Founder{Member: h.GetMember(), Name: h.GetName(), Advertise: h.GetAdvertise(), Key: h.GetKey()}
}

// propose sends a proposal on a connection of its own.
func propose(t *testing.T, to *process, key ed25519.PrivateKey, founders []*wire.Founder) *wire.FormReply {
	t.Helper()
	h := hostile.Hello(key, wire.Kind_FORM)
	c, refusal, err := hostile.Connect(to.addr, key, h)
	if err != nil || refusal != "" {
		t.Fatal(refusal, err)
	}
	defer c.Close()
	cluster := hostile.NewKey()[:16]
	mustSucceed(t, c.SendMessage(&wire.FormRequest{
		Proposal:  &wire.Proposal{Cluster: cluster, Founders: founders, Voters: 3},
		Candidate: &wire.GossipMeta{Version: wire.GossipVersion, Member: h.GetMember(), Boot: 1, Key: h.GetKey(), Expect: 3, Voters: 3, Advertise: h.GetAdvertise()},
	}))
	body, err := c.Receive()
	mustSucceed(t, err)
	reply := new(wire.FormReply)
	mustSucceed(t, proto.Unmarshal(body, reply))
	return reply
}
