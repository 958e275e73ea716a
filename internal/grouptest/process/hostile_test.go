package process

import (
	"crypto/ed25519"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// stolen kills a member and returns what its directory holds, its key included.
func (g *processGroup) stolen(i int) (ed25519.PrivateKey, *wire.Identity) {
	g.t.Helper()
	g.members[i].kill()
	return grouptest.Stolen(g.t, storage.Options{Dir: g.configs[i].Dir})
}

// connectAs connects as a member whose process has just been killed.
func (g *processGroup) connectAs(to *process, key ed25519.PrivateKey, h *wire.Hello) *hostile.Conn {
	g.t.Helper()
	c, err := hostile.Replace(func() (net.Conn, error) { return net.Dial("tcp", to.addr) }, key, h)
	mustSucceed(g.t, err)
	g.t.Cleanup(func() { c.Close() })
	return c
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

// wantClosed checks that the member closed the connection instead of answering a proof.
func wantClosed(t *testing.T, number, what string, c *hostile.Conn) {
	t.Helper()
	_, err := c.Proof(hostile.ListenerVerdict)
	hostile.Attempt(t, number, what, "the member does not answer the proof: %v", err)
	if !errors.Is(err, hostile.ErrClosed) {
		t.Errorf("%s: got %v, want %v", what, err, hostile.ErrClosed)
	}
}

func mustSucceed(t testing.TB, err error) {
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
	hostile.Attempt(t, "A2", "claim a member's ID with another key, and the boot counter 2^40", "refused: %s", refusal)
	if err != nil || !strings.Contains(refusal, "malformed hello") {
		t.Errorf("got %q, %v", refusal, err)
	}
	c, err := hostile.Dial(g.members[0].addr)
	mustSucceed(t, err)
	defer c.Close()
	mustSucceed(t, c.Greet(claim(victim.GetKey())))
	mustSucceed(t, c.Prove(c.Sign(key, hostile.DialerProof, "")))
	wantClosed(t, "A2", "claim a member's ID and its public key without the private one, and the boot counter 2^40", c)
	for _, kind := range []wire.Kind{wire.Kind_PEER, wire.Kind_GOSSIP_PACKETS, wire.Kind_GOSSIP_STREAM, wire.Kind_SNAPSHOT} {
		h := hostile.Hello(key, kind)
		h.Cluster = victim.GetCluster()
		_, refusal, err := hostile.Connect(g.members[0].addr, key, h)
		hostile.Attempt(t, "A2", "open a connection of kind "+kind.String()+" as a stranger", "refused: %s", refusal)
		if err != nil || !strings.Contains(refusal, "not a member") {
			t.Errorf("%v: got %q, %v", kind, refusal, err)
		}
	}
	g.members[1].kill()
	g.restart(1)
	g.wantWorking(1)
	hostile.Attempt(t, "A2", "lock the real member out by all of that", "it restarted with boot counter %d and acquired a lock", helloOf(t, g.members[1]).Theirs.GetBoot())
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

	again := func(what string, to int, hello []byte, proof *wire.Proof) {
		c, err := hostile.Dial(g.members[to].addr)
		mustSucceed(t, err)
		defer c.Close()
		mustSucceed(t, c.GreetRaw(hello))
		mustSucceed(t, c.Prove(proof))
		wantClosed(t, "A2", what, c)
	}
	ours, err := proto.Marshal(h) // the same nonce as well
	mustSucceed(t, err)
	again("replay a recorded hello and proof", 0, ours, proof)
	again("reflect a member's own hello and verdict", 0, recorded.TheirHello(), verdict)
	again("relay a member's hello and verdict to another member", 2, recorded.TheirHello(), verdict)
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

// wantNotRemoved checks that members that were told that the group has removed them are
// in it, and that their directories are not marked.
func (g *processGroup) wantNotRemoved(what string) {
	g.t.Helper()
	for _, i := range []int{0, 2} {
		g.wantWorking(i)
	}
	g.members[0].kill()
	g.restart(0)
	g.wantWorking(0)
	hostile.Attempt(g.t, "A1", what, "three refusals ignored: both go on and acquire locks, one after a restart from its directory")
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
	g.wantNotRemoved("refuse two members as removed, as a stranger that listens at the third one's address")
}

// Nor can a single member.
func TestHostile_RemovedRefusalByMember(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	addr := g.members[1].addr
	key, record := g.stolen(1)
	lyingListener(t, addr, key, func() *wire.Hello { return hostile.AsMember(key, record, wire.Kind_PEER) })
	g.wantNotRemoved("refuse two members as removed, with the third one's key")
}

// A process with a member's key that the group does not register uses up no boot counter:
// the member's next process is accepted again by each peer, which the others need when the
// third has crashed.
func TestHostile_BootCounterOfUnregisteredProcess(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	leader := g.leader()
	follower, victim := (leader+1)%3, (leader+2)%3
	key, record := g.stolen(victim)
	h := hostile.AsMember(key, record, wire.Kind_PEER)
	h.Boot += 5
	mustSucceed(t, g.connectAs(g.members[follower], key, h).Close())
	g.restart(victim)
	g.wantWorking(victim)
	g.members[leader].kill()
	g.wantWorking(victim)
	hostile.Attempt(t, "A2", "use up boot counters of a member with its key", "its next process is accepted by all")
}
