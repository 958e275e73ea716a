package process

import (
	"crypto/ed25519"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// stolen kills a member and returns what its directory holds, its key included.
func (g *processGroup) stolen(i int) (ed25519.PrivateKey, *wire.Identity) {
	g.t.Helper()
	g.members[i].kill()
	store, err := storage.Open(storage.Options{Dir: g.configs[i].Dir})
	if err != nil {
		g.t.Fatal(err)
	}
	defer store.Close()
	log, err := raftlog.Open(store, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	data, err := log.Local("identity")
	if err != nil {
		g.t.Fatal(err)
	}
	record := new(wire.Identity)
	if err := proto.Unmarshal(data, record); err != nil {
		g.t.Fatal(err)
	}
	return ed25519.NewKeyFromSeed(record.GetKey()), record
}

// asMember returns a hello of the member whose key was stolen, as its next process.
func asMember(key ed25519.PrivateKey, record *wire.Identity, kind wire.Kind) *wire.Hello {
	h := hostile.Hello(key, kind)
	h.Cluster, h.Boot = record.GetCluster(), record.GetBoot()+1
	return h
}

// connectAs connects as a member whose process has just been killed: its peers may still
// count it as connected.
func (g *processGroup) connectAs(to *process, key ed25519.PrivateKey, h *wire.Hello) *hostile.Conn {
	g.t.Helper()
	for range 200 {
		c, refusal, err := hostile.Connect(to.addr, key, h)
		switch {
		case err != nil:
			g.t.Fatal(err)
		case refusal == "":
			g.t.Cleanup(func() { c.Close() })
			return c
		case !strings.Contains(refusal, "still in contact"):
			g.t.Fatal(refusal)
		}
		<-time.After(50 * time.Millisecond) // no report signals that a broken connection is noticed
	}
	g.t.Fatal("the killed process is still in contact")
	return nil
}

// helloOf returns the hello of a member, which any process that reaches it can read.
func helloOf(t *testing.T, p *process) *hostile.Conn {
	t.Helper()
	c, err := hostile.Dial(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Greet(hostile.Hello(hostile.NewKey(), wire.Kind_FORM)); err != nil {
		t.Fatal(err)
	}
	return c
}

// wantWorking checks that a group acquires and releases a lock at a member.
func (g *processGroup) wantWorking(i int) {
	g.t.Helper()
	g.members[i].must("lock", "works")
	g.members[i].must("unlock", "works")
}

// attempt prints what was tried and how the member answered.
func attempt(t *testing.T, what string, result any) {
	t.Helper()
	t.Logf("attempt: %-60s result: %v", what, result)
}

// wantClosed checks that the member closed the connection instead of answering a proof.
func wantClosed(t *testing.T, what string, c *hostile.Conn) {
	t.Helper()
	_, err := c.Proof(hostile.ListenerVerdict)
	attempt(t, what, err)
	if !errors.Is(err, hostile.ErrClosed) {
		t.Errorf("%s: got %v, want %v", what, err, hostile.ErrClosed)
	}
}

func mustSucceed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A stranger claims to be a member, with the boot counter 2^40, and has no key of one.
func TestHostile_ClaimedIdentity(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	victim, key := helloOf(t, g.members[1]).Theirs, hostile.NewKey()
	claim := func(public ed25519.PublicKey) *wire.Hello {
		h := hostile.Hello(key, wire.Kind_PEER)
		h.Member, h.Key, h.Cluster, h.Boot = victim.GetMember(), public, victim.GetCluster(), 1<<40
		return h
	}
	_, refusal, err := hostile.Connect(g.members[0].addr, key, claim(hostile.Public(key)))
	attempt(t, "claim a member's ID with another key, boot counter 2^40", refusal)
	if err != nil || !strings.Contains(refusal, "malformed hello") {
		t.Errorf("got %q, %v", refusal, err)
	}
	c, err := hostile.Dial(g.members[0].addr)
	mustSucceed(t, err)
	defer c.Close()
	mustSucceed(t, c.Greet(claim(victim.GetKey())))
	mustSucceed(t, c.Prove(c.Sign(key, hostile.DialerProof, "")))
	wantClosed(t, "claim a member's key without having it, boot counter 2^40", c)
	for _, kind := range []wire.Kind{wire.Kind_PEER, wire.Kind_GOSSIP_PACKETS, wire.Kind_GOSSIP_STREAM, wire.Kind_SNAPSHOT} {
		h := hostile.Hello(key, kind)
		h.Cluster = victim.GetCluster()
		_, refusal, err := hostile.Connect(g.members[0].addr, key, h)
		attempt(t, "a stranger opens a connection of kind "+kind.String(), refusal)
		if err != nil || !strings.Contains(refusal, "not a member") {
			t.Errorf("%v: got %q, %v", kind, refusal, err)
		}
	}
	g.members[1].kill()
	g.restart(1)
	g.wantWorking(1)
}

// Proofs of other connections are worthless.
func TestHostile_ReplayAndReflection(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	key := hostile.NewKey()
	h := hostile.Hello(key, wire.Kind_FORM)
	recorded, err := hostile.Dial(g.members[0].addr)
	mustSucceed(t, err)
	defer recorded.Close()
	mustSucceed(t, recorded.Greet(h))
	proof := recorded.Sign(key, hostile.DialerProof, "")
	mustSucceed(t, recorded.Prove(proof))
	verdict, err := recorded.Proof(hostile.ListenerVerdict)
	mustSucceed(t, err)

	replay, err := hostile.Dial(g.members[0].addr)
	mustSucceed(t, err)
	defer replay.Close()
	mustSucceed(t, replay.Greet(h)) // the same nonce as well
	mustSucceed(t, replay.Prove(proof))
	wantClosed(t, "replay a recorded hello and proof", replay)

	reflected, err := hostile.Dial(g.members[0].addr)
	mustSucceed(t, err)
	defer reflected.Close()
	mustSucceed(t, reflected.GreetRaw(recorded.TheirHello()))
	mustSucceed(t, reflected.Prove(verdict))
	wantClosed(t, "reflect a member's own hello and verdict", reflected)

	relayed, err := hostile.Dial(g.members[2].addr)
	mustSucceed(t, err)
	defer relayed.Close()
	mustSucceed(t, relayed.GreetRaw(recorded.TheirHello()))
	mustSucceed(t, relayed.Prove(verdict))
	wantClosed(t, "relay a member's hello and verdict to another member", relayed)
	g.wantWorking(0)
}

// lyingListener answers each dial at the address of a killed member with a refusal, and
// returns after three of them.
func lyingListener(t *testing.T, addr string, key ed25519.PrivateKey, h func() *wire.Hello) {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	mustSucceed(t, err)
	defer ln.Close()
	for answered := 0; answered < 3; {
		c, err := ln.Accept()
		mustSucceed(t, err)
		if hostile.Refuse(c, key, h(), "not a member any more: the group has removed you") == nil {
			answered++
		}
		c.Close()
	}
}

// A stranger cannot make a member believe that it has been removed.
func TestHostile_RemovedRefusalByStranger(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	addr := g.members[1].addr
	_, record := g.stolen(1)
	stranger := hostile.NewKey()
	lyingListener(t, addr, stranger, func() *wire.Hello {
		h := hostile.Hello(stranger, wire.Kind_PEER)
		h.Cluster = record.GetCluster()
		return h
	})
	g.wantWorking(0)
	g.wantWorking(2)
	attempt(t, "a stranger refuses members as removed, at a member's address", "ignored")
}

// Nor can a single member.
func TestHostile_RemovedRefusalByMember(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	addr := g.members[1].addr
	key, record := g.stolen(1)
	lyingListener(t, addr, key, func() *wire.Hello { return asMember(key, record, wire.Kind_PEER) })
	g.wantWorking(0)
	g.wantWorking(2)
	attempt(t, "a single member refuses the others as removed", "they continue")
}

// A member cannot speak for the incarnation of another.
func TestHostile_SubmissionOfAnotherMember(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 2*time.Second)
	holder := g.members[2]
	fence := holder.must("lock", "x")
	victim := helloOf(t, holder).Theirs
	key, record := g.stolen(1)
	command, err := proto.Marshal(&wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}})
	mustSucceed(t, err)
	for _, to := range []*process{g.members[0], holder} {
		c := g.connectAs(to, key, asMember(key, record, wire.Kind_PEER))
		for _, member := range []uint64{victim.GetMember(), record.GetMember(), 0} {
			mustSucceed(t, c.SendMessage(&wire.Frame{Body: &wire.Frame_Submission{Submission: &wire.Submission{
				Incarnation: victim.GetIncarnation(), Member: member, Calls: []*wire.Call{{Seq: 1 << 20, Command: command}},
			}}}))
		}
		mustSucceed(t, c.Close())
	}
	g.wantWorking(0)
	now, err := holder.ask("fence", "x")
	attempt(t, "end another member's incarnation by a forged submission", now)
	if err != nil || now != fence {
		t.Errorf("the holder's fence is %v, %v, want %v", now, err, fence)
	}
}

// A member cannot declare another one dead by a death that cannot be refuted, nor make
// memberlist allocate.
func TestHostile_ForgedGossip(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	victim := helloOf(t, g.members[2]).Theirs
	key, record := g.stolen(1)
	packets := g.connectAs(g.members[0], key, asMember(key, record, wire.Kind_GOSSIP_PACKETS))
	mustSucceed(t, packets.Send(hostile.ForgedDeath(victim.GetMember(), victim.GetBoot())))
	for range 20 {
		r, err := g.members[0].do(order{Do: "alive"})
		mustSucceed(t, err)
		if !r.alive(victim.GetMember()) {
			t.Fatal("a forged death was believed")
		}
		<-time.After(50 * time.Millisecond) // what must not happen has no signal
	}
	attempt(t, "declare a member dead with incarnation MaxUint32", "dropped")
	h := asMember(key, record, wire.Kind_GOSSIP_STREAM)
	h.Incarnation = packets.Ours.GetIncarnation()
	stream := g.connectAs(g.members[0], key, h)
	_, err := stream.Write(hostile.ForgedStates())
	mustSucceed(t, err)
	n, err := stream.AwaitClose()
	mustSucceed(t, err)
	attempt(t, "announce 2^20 states of nodes and 20 MiB of user state", "closed")
	if n > 1<<10 { // memberlist's own states would be the answer
		t.Errorf("the member answered with %d bytes", n)
	}
	g.wantWorking(0)
}

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
	attempt(t, "128 idle connections to each member while one restarts", "it is back")
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
	for i := range 100 {
		founders := []*wire.Founder{founder(hostile.Hello(key, 0)), founder(helloOf(t, g.members[0]).Theirs), founder(helloOf(t, g.members[1]).Theirs)}
		reply := propose(t, g.members[i%2], key, founders)
		if i == 0 {
			attempt(t, "a stranger proposes a group", reply.GetRefusal())
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
	attempt(t, "100 proposals of a stranger while a group forms", "it formed")
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
