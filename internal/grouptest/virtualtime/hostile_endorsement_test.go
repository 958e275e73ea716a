package virtualtime

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// What the key of a removed member is good for: it has endorsements, and can sign others.

// endorse signs as cluster/identity/endorsements.go does.
func endorse(by ed25519.PrivateKey, cluster []byte, key ed25519.PublicKey) *wire.Endorsement {
	const index = 1 << 40
	var text []byte
	for _, part := range [][]byte{[]byte("conclave endorsement 1"), cluster, key, binary.BigEndian.AppendUint64(nil, index)} {
		text = binary.BigEndian.AppendUint32(text, uint32(len(part)))
		text = append(text, part...)
	}
	return &wire.Endorsement{Key: hostile.Public(by), Signature: ed25519.Sign(by, text), Index: index}
}

// removedMember has a member join and leave, and returns what its directory has.
func (g *membership) removedMember(i int) (ed25519.PrivateKey, *wire.Identity) {
	g.Start(i)
	g.awaitVoters(3, 1)
	g.leave(i)
	g.awaitVoters(3, 0)
	return grouptest.Stolen(g.T, storage.Options{Dir: g.Configs[i].Dir, FS: g.Seams[i].FS})
}

// enter connects to a member until it is accepted, three times at most.
func (g *membership) enter(to int, key ed25519.PrivateKey, record *wire.Identity, chain []*wire.Endorsement) (c *hostile.Conn, refusal string) {
	g.T.Helper()
	h := hostile.Hello(key, wire.Kind_PEER)
	h.Cluster, h.Boot, h.Endorsements = record.GetCluster(), record.GetBoot()+1, chain
	for range 3 {
		h.Nonce = hostile.Hello(key, wire.Kind_PEER).Nonce
		raw, err := g.Net.Dial(context.Background(), 3, g.Configs[to].Bind)
		grouptest.Must(g.T, err)
		c, refusal, err = hostile.Over(raw, key, h)
		grouptest.Must(g.T, err)
		if refusal == "" {
			return c, ""
		}
		pass(10 * time.Millisecond)
	}
	return nil, refusal
}

// heartbeat sends a heartbeat as if the sender led.
func (g *membership) heartbeat(c *hostile.Conn, from ed25519.PrivateKey, to int, term uint64) {
	g.T.Helper()
	beat, err := proto.Marshal(&raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(wire.FingerprintOf(hostile.Public(from))), To: new(g.Member(to).Status().ID),
		Term: new(term), Commit: new(uint64(0)),
	})
	grouptest.Must(g.T, err)
	grouptest.Must(g.T, c.SendMessage(&wire.Frame{Body: &wire.Frame_Raft{Raft: beat}}))
	pass(10 * time.Millisecond)
}

// A member whose log has the removal refuses the removed member, and a stranger that this one
// has endorsed.
func TestHostile_RemovedMemberEndorsesStranger(t *testing.T) {
	inMembershipBubble(t, 4, func(g *membership) {
		removed, record := g.removedMember(3)
		leader := g.Leader()
		term := g.Nodes[leader].Status().Term
		stranger := hostile.NewKey()
		chain := append(record.GetEndorsements(), endorse(removed, record.GetCluster(), hostile.Public(stranger)))
		for key, chain := range map[*ed25519.PrivateKey][]*wire.Endorsement{&removed: record.GetEndorsements(), &stranger: chain} {
			if c, refusal := g.enter(leader, *key, record, chain); refusal == "" {
				g.T.Errorf("accepted: %v", wire.MemberID(wire.FingerprintOf(hostile.Public(*key))))
				g.heartbeat(c, *key, leader, term+5)
				c.Close()
			}
		}
		if now := g.Nodes[g.Leader()].Status().Term; now != term {
			g.T.Errorf("term %d, before %d", now, term)
		}
	}, grouptest.Newcomers(1))
}

// A removed member is accepted by a member whose log ends before its admission, and so is what it
// vouches for, whatever it claims. Both end when that log has the removal.
func TestHostile_RemovedMemberVouches(t *testing.T) {
	inMembershipBubble(t, 4, func(g *membership) {
		x := (g.Leader() + 1) % 3
		g.Kill(x)
		removed, record := g.removedMember(3)
		for _, i := range g.Running() {
			g.Net.Partition(i, x)
		}
		opened := make(chan error, 1)
		go func() {
			n, err := g.Open(x, 10*time.Minute)
			g.Nodes[x] = n
			opened <- err
		}()
		pass(time.Second)
		c, refusal := g.enter(x, removed, record, record.GetEndorsements())
		if refusal != "" {
			g.T.Fatal(refusal)
		}
		defer c.Close()
		body := &wire.Membership{Index: math.MaxUint64}
		for range 300 {
			key := hostile.Public(hostile.NewKey())
			body.Members = append(body.Members, &wire.VouchedMember{Member: wire.FingerprintOf(key), Key: key, Name: "none", Advertise: "127.0.0.1:9"})
		}
		grouptest.Must(g.T, c.SendMessage(&wire.Frame{Body: &wire.Frame_Membership{Membership: body}}))
		pass(100 * time.Millisecond)
		known := func() (n int) {
			ids := []uint64{wire.FingerprintOf(hostile.Public(removed))}
			for _, v := range body.GetMembers() {
				ids = append(ids, v.GetMember())
			}
			for _, id := range ids {
				if g.Member(x).IsMember(id) {
					n++
				}
			}
			return n
		}
		if n := known(); n < 2 || n > 257 {
			g.T.Errorf("%d are accepted, want the removed member and those for which it vouches, 256 at most", n)
		}
		for _, i := range g.Running() {
			g.Net.Heal(i, x)
		}
		grouptest.Must(g.T, <-opened)
		pass(time.Second)
		if n := known(); n > 0 {
			g.T.Errorf("%d are still accepted", n)
		}
		if c, refusal := g.enter(x, removed, record, record.GetEndorsements()); refusal == "" {
			c.Close()
			g.T.Error("the removed member is accepted again")
		}
	}, grouptest.Newcomers(1))
}

// VerifyPeer refuses a process: its endorsements have no effect.
func TestHostile_EndorsedAndNotVerified(t *testing.T) {
	inMembershipBubble(t, 4, func(g *membership) {
		x := (g.Leader() + 1) % 3
		g.Kill(x)
		removed, record := g.removedMember(3)
		for _, i := range g.Running() {
			g.Net.Partition(i, x)
		}
		opened := make(chan error, 1)
		go func() {
			n, err := g.Open(x, 10*time.Minute)
			g.Nodes[x] = n
			opened <- err
		}()
		pass(time.Second)
		if _, refusal := g.enter(x, removed, record, record.GetEndorsements()); refusal == "" {
			g.T.Error("accepted")
		}
		if g.Member(x).IsMember(wire.FingerprintOf(hostile.Public(removed))) {
			g.T.Error("a process that VerifyPeer refuses is a member")
		}
		for _, i := range g.Running() {
			g.Net.Heal(i, x)
		}
		grouptest.Must(g.T, <-opened)
	}, grouptest.Newcomers(1), grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
		c.VerifyPeer = func(p conclave.Peer) error {
			if p.Name == "hostile" {
				return errors.New("unknown host")
			}
			return nil
		}
	}))
}

// A newcomer that has been admitted has an empty log, so it knows of no removal. It must not accept
// a member that was removed before, and of which its admission says nothing.
func TestHostile_RemovedMemberAndNewcomer(t *testing.T) {
	inMembershipBubble(t, 5, func(g *membership) {
		removed, record := g.removedMember(3)
		leader := g.Leader()
		follower := g.Others(leader)[0]
		term := g.Nodes[leader].Status().Term
		g.Configs[4].Join = []string{g.Configs[follower].Bind}
		g.Net.Partition(leader, 4) // no snapshot yet
		opened := make(chan error, 1)
		go func() {
			n, err := g.Open(4, 5*time.Minute)
			g.Nodes[4] = n
			opened <- err
		}()
		for g.Member(4) == nil {
			pass(50 * time.Millisecond)
		}
		pass(time.Second)
		if c, refusal := g.enter(4, removed, record, record.GetEndorsements()); refusal == "" {
			g.T.Error("a newcomer has accepted a removed member")
			g.heartbeat(c, removed, 4, term+1000)
			c.Close()
		}
		g.Net.Heal(leader, 4)
		grouptest.Must(g.T, <-opened)
		pass(10 * time.Second)
		if now := g.Nodes[g.Leader()].Status().Term; now != term {
			g.T.Errorf("term %d, before %d", now, term)
		}
	}, grouptest.Newcomers(2))
}
