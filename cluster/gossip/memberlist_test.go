package gossip

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/memnet"
	"github.com/conclave-go/conclave/internal/wire"
)

var testCluster = wire.ID{0xc1}

// Tests number their members.
func keyOf(n int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = byte(n)
	return ed25519.NewKeyFromSeed(seed)
}

func memberID(n int) uint64 { return wire.FingerprintOf(hostile.Public(keyOf(n))) }

// node is the transport of a member.
type node struct {
	*transport.Transport
	addr    string
	process string // the name of its process
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// start starts the transport of member n, for which all are members.
func start(t *testing.T, n int, ln net.Listener, change ...func(*transport.Config)) *node {
	t.Helper()
	cfg := transport.Config{
		Identity: transport.Identity{Group: "test", Cluster: testCluster, Member: memberID(n), Incarnation: wire.ID{byte(n), 1}, Boot: 1, Name: fmt.Sprint("m", n)},
		Key:      keyOf(n), Listener: ln, Handler: noHandler{}, Member: func(uint64) bool { return true },
	}
	for _, c := range change {
		c(&cfg)
	}
	port, err := transport.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	port.Start()
	t.Cleanup(func() {
		if err := port.Close(); err != nil {
			t.Error(err)
		}
	})
	return &node{port, ln.Addr().String(), wire.ProcessName(memberID(n), 1)}
}

// noHandler is of a transport that carries gossip only.
type noHandler struct{}

func (noHandler) Frame(uint64, *wire.Frame)                              {}
func (noHandler) PeerConnected(uint64, string, string)                   {}
func (noHandler) PeerLost(uint64)                                        {}
func (noHandler) Form(*wire.FormRequest) *wire.FormReply                 { return &wire.FormReply{} }
func (noHandler) Snapshot(uint64, *transport.SnapshotReader) (err error) { return nil }

// gossiper is a member of a memberlist cluster over transports.
type gossiper struct {
	*node
	list   *memberlist.Memberlist
	joined chan *memberlist.Node
	dead   chan *memberlist.Node
}

func (g *gossiper) NotifyJoin(n *memberlist.Node)   { g.joined <- n }
func (g *gossiper) NotifyLeave(n *memberlist.Node)  { g.dead <- n }
func (g *gossiper) NotifyUpdate(n *memberlist.Node) {}

// Of the delegate, only the metadata is used.
func (g *gossiper) NodeMeta(int) []byte               { return []byte("meta of " + g.process) }
func (*gossiper) NotifyMsg([]byte)                    {}
func (*gossiper) GetBroadcasts(int, int) [][]byte     { return nil }
func (*gossiper) LocalState(bool) []byte              { return nil }
func (*gossiper) MergeRemoteState(buf []byte, _ bool) {}

func startGossip(t *testing.T, n *node) *gossiper {
	t.Helper()
	g := &gossiper{node: n, joined: make(chan *memberlist.Node, 100), dead: make(chan *memberlist.Node, 100)}
	cfg := memberlist.DefaultLocalConfig()
	cfg.Name = n.process
	cfg.Transport = newProbeWatch(n.Gossip(), n.process)
	cfg.Events, cfg.Delegate = g, g
	cfg.LogOutput = io.Discard
	cfg.EnableCompression = false
	cfg.TCPTimeout = 10 * time.Second // a busy machine takes longer than the default of 1 s for an exchange
	cfg.UDPBufferSize = 32 << 10
	cfg.ProbeInterval, cfg.ProbeTimeout = 200*time.Millisecond, 100*time.Millisecond
	cfg.GossipInterval = 20 * time.Millisecond
	cfg.SuspicionMult = 2
	cfg.AwarenessMaxMultiplier = 1 // no probe lasts longer under load
	list, err := memberlist.Create(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.list = list
	t.Cleanup(func() {
		_ = list.Shutdown()
		<-time.After(cfg.ProbeInterval) // Shutdown does not wait for the last probe, which ends by then
	})
	return g
}

// checkFailureDetection joins three members, kills one and waits until the others
// declare it dead.
func checkFailureDetection(t *testing.T, nodes [3]*node) {
	t.Helper()
	var g [3]*gossiper
	for i, n := range nodes {
		g[i] = startGossip(t, n)
		if i > 0 {
			if _, err := g[i].list.Join([]string{g[0].addr}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range g {
		seen := make(map[string]bool)
		for len(seen) < 3 { // itself included
			n := <-x.joined
			if want := "meta of " + n.Name; string(n.Meta) != want {
				t.Errorf("%q has metadata %q, want %q", n.Name, n.Meta, want)
			}
			seen[n.Name] = true
		}
	}
	nodes[2].Close() // without Leave
	for _, x := range g[:2] {
		// Under load another may be declared dead, and refute it.
		for n := <-x.dead; n.Name != nodes[2].process; n = <-x.dead {
			t.Logf("%s declared %s dead", x.list.LocalNode().Name, n.Name)
		}
	}
}

func TestGossip_MemberlistOverTCP(t *testing.T) {
	checkFailureDetection(t, [3]*node{start(t, 1, listenTCP(t)), start(t, 2, listenTCP(t)), start(t, 3, listenTCP(t))})
}

// The addresses in the bubble are IP addresses because memberlist parses them.
func TestGossip_MemberlistInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// memberlist's Shutdown does not wait for its probes, which end with
		// their timers. Those run only while the test does.
		t.Cleanup(func() { time.Sleep(time.Minute) })
		network := memnet.New(3)
		var nodes [3]*node
		addr := func(i int) string { return fmt.Sprintf("10.0.0.%d:7000", i+1) }
		for i := range nodes {
			nodes[i] = start(t, i+1, network.Listen(i, addr(i)), func(c *transport.Config) { c.Insecure, c.Dial = true, network.Dialer(i) })
			for other := range nodes {
				nodes[i].SetPeer(memberID(other+1), addr(other))
			}
		}
		checkFailureDetection(t, nodes)
	})
}

// A member of another group is refused with both groups named.
func TestGossip_OtherGroupRefused(t *testing.T) {
	a := startGossip(t, start(t, 1, listenTCP(t)))
	b := startGossip(t, start(t, 2, listenTCP(t), func(c *transport.Config) { c.Identity.Group = "other" }))
	_, err := b.list.Join([]string{a.addr})
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte(`configured for group "other"`)) {
		t.Errorf("joined another group: %v", err)
	}
}

// pushPullMessage is memberlist's type of an exchange of states.
const pushPullMessage = 6

// exchangeAs exchanges states with a member as member 3, and returns when they are merged.
func exchangeAs(t *testing.T, to *gossiper, states ...[]byte) {
	t.Helper()
	h := hostile.Hello(keyOf(3), wire.Kind_GOSSIP_STREAM)
	h.Group, h.Cluster, h.Incarnation, h.DurableTerm, h.DurableIndex = "test", testCluster[:], append([]byte{3, 1}, make([]byte, 14)...), 0, 0
	c, refusal, err := hostile.Connect(to.addr, keyOf(3), h)
	if err != nil || refusal != "" {
		t.Fatal(refusal, err)
	}
	defer c.Close()
	out := append([]byte{pushPullMessage}, hostile.Pack("Nodes", len(states), "UserStateLen", 0)...)
	for _, s := range states {
		out = append(out, s...)
	}
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AwaitClose(); err != nil { // memberlist closes it last
		t.Fatal(err)
	}
}

// One message of a faulty member, whatever its incarnation, does not end the refutations of
// another member, nor its exchanges with a third one.
func TestGossip_FarIncarnationOfFaultyMember(t *testing.T) {
	victim := startGossip(t, start(t, 1, listenTCP(t)))
	witness := startGossip(t, start(t, 2, listenTCP(t)))
	join := func() {
		t.Helper()
		if _, err := victim.list.Join([]string{witness.process + "/" + witness.addr}); err != nil {
			t.Fatal(err)
		}
	}
	join()
	state := func(incarnation uint32, state int) []byte {
		self := victim.list.LocalNode()
		return hostile.Pack("Name", self.Name, "Addr", []byte(self.Addr), "Port", int(self.Port), "Meta", []byte("forged"),
			"Incarnation", incarnation, "State", state, "Vsn", []byte{1, 5, 2, 0, 0, 0})
	}
	// 1,024 is gossipfilter's bound.
	for _, incarnation := range []uint32{1 << 30, 1 << 31, math.MaxUint32 - 1, math.MaxUint32, 1024, 2048} {
		for _, to := range []*gossiper{witness, victim} {
			exchangeAs(t, to, state(incarnation, int(memberlist.StateAlive)))
			exchangeAs(t, to, state(incarnation, int(memberlist.StateDead)))
		}
		join()
		await(t, func() error { return hasMeta(witness, victim.process) })
	}
}

// hasMeta returns an error unless a member has another one as alive, with its own meta data.
func hasMeta(g *gossiper, process string) error {
	for _, n := range g.list.Members() {
		if n.Name == process && n.State == memberlist.StateAlive && string(n.Meta) == "meta of "+process {
			return nil
		}
	}
	return fmt.Errorf("got %v, want %s alive", g.list.Members(), process)
}

// await polls until check returns nil.
func await(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// What memberlist joins is dialed as the target that it stands for, once.
func TestJoinAddress_StandsForTarget(t *testing.T) {
	o := &outgoing{port: start(t, 1, listenTCP(t)).Gossip()}
	to := transport.Target{Addr: "svc:7000", Member: memberID(2), Advertised: true, Host: "svc"}
	addr, forget := o.joinAddress(to)
	name, placeholder, _ := strings.Cut(addr, "/") // as memberlist does
	list := memberlist.Address{Name: name, Addr: placeholder}
	if got, err := o.target(list); err != nil || got != to {
		t.Errorf("got %+v, %v; want %+v", got, err, to)
	}
	_ = forget()
	if _, err := o.target(list); err == nil {
		t.Error("the name is still known")
	}
}

// What memberlist dials names the member by its process: any process of it, at an IP address that
// the member advertises. A name that is none is not dialed, and an address without a name may be
// another name of a member.
func TestOutgoing_ProcessStandsForMember(t *testing.T) {
	one := start(t, 1, listenTCP(t))
	one.SetPeer(memberID(2), "pod-2:7000")
	o := &outgoing{port: one.Gossip()}
	for _, c := range []struct {
		process string
		want    transport.Target // zero: refused
	}{
		{wire.ProcessName(memberID(2), 1), transport.Target{Addr: "10.0.0.2:7000", Member: memberID(2), Advertised: true, Host: "pod-2"}},
		{wire.ProcessName(memberID(2), 7), transport.Target{Addr: "10.0.0.2:7000", Member: memberID(2), Advertised: true, Host: "pod-2"}},
		{"", transport.Target{Addr: "10.0.0.2:7000"}},
		{"m2", transport.Target{}},
	} {
		got, err := o.target(memberlist.Address{Addr: "10.0.0.2:7000", Name: c.process})
		if got != c.want || (err == nil) != (c.want != transport.Target{}) {
			t.Errorf("%q: %+v, %v; want %+v", c.process, got, err, c.want)
		}
	}
	if _, err := o.DialAddressTimeout(memberlist.Address{Addr: one.addr, Name: "m2"}, time.Minute); err == nil {
		t.Error("a process with the name m2 was dialed")
	}
	if _, err := o.WriteToAddress([]byte{0}, memberlist.Address{Addr: one.addr, Name: "m2"}); err == nil {
		t.Error("a packet was sent to a process with the name m2")
	}
}

func TestOutgoing_FinalAdvertiseAddr(t *testing.T) {
	o := &outgoing{port: start(t, 1, listenTCP(t), func(c *transport.Config) { c.Identity.Advertise = "10.1.2.3:7000" }).Gossip()}
	for _, c := range []struct {
		ip   string
		port int
		want string
	}{{"", 0, "10.1.2.3:7000"}, {"10.9.9.9", 99, "10.9.9.9:99"}} {
		ip, port, err := o.FinalAdvertiseAddr(c.ip, c.port)
		if got := (&net.TCPAddr{IP: ip, Port: port}).String(); err != nil || got != c.want {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
	}
}
