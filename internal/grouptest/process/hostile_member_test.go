package process

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

// call is a submission of one command. The connection keeps the order of several.
func call(t *testing.T, incarnation []byte, member, seq uint64, c *wire.Command) *wire.Frame {
	t.Helper()
	command, err := proto.Marshal(c)
	mustSucceed(t, err)
	return &wire.Frame{Body: &wire.Frame_Submission{Submission: &wire.Submission{
		Incarnation: incarnation, Member: member, Calls: []*wire.Call{{Seq: seq, Command: command}},
	}}}
}

func put(key string) *wire.Command {
	return &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: []*wire.KeyOp{{Kind: wire.KeyOp_PUT, Key: key}}}}}
}

// register returns the registration of the next process of a member whose directory was
// stolen.
func register(h *wire.Hello, record *wire.Identity) *wire.Command {
	return &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{
		Member: h.GetMember(), Boot: h.GetBoot(), Key: h.GetKey(), FeatureLevel: wire.FeatureLevel,
		Ttl: int64(time.Minute), Tokens: record.GetTokens(), NextToken: h.GetIncarnation(),
	}}}
}

// A member cannot speak for the incarnation of another one. The leader has its commands
// over a proven connection: those of its own incarnation take effect, before and after
// the forged one.
func TestHostile_SubmissionOfAnotherMember(t *testing.T) {
	t.Parallel()
	g := processesWith(t, 3, memberConfig{TTL: time.Minute, Slow: true}) // a member drops submissions once it leads no more
	holder := g.members[2]
	fence := holder.must("lock", "x")
	before, err := holder.do(order{Do: "sessions"})
	mustSucceed(t, err)
	victim := helloOf(t, holder).Theirs
	key, record := g.stolen(1)
	leader := g.members[g.leader()]
	h := hostile.AsMember(key, record, wire.Kind_PEER)
	c := g.connectAs(leader, key, h)
	own, member, theirs := h.GetIncarnation(), h.GetMember(), victim.GetIncarnation()
	end := &wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}}
	const unused = 5000 // a sequence number that the victim has not used yet
	for _, f := range []*wire.Frame{
		call(t, own, member, 1, register(h, record)), call(t, own, member, 2, put("before")),
		call(t, theirs, member, unused, end),
		call(t, own, member, 3, put("after")),
	} {
		mustSucceed(t, c.SendMessage(f))
	}
	for _, key := range []string{"before", "after"} {
		_, err := leader.do(order{Do: "key", Text: key})
		mustSucceed(t, err)
	}
	wantUnharmed := func(what, stopped string) {
		t.Helper()
		now, err := holder.ask("fence", "x")
		after, listErr := holder.do(order{Do: "sessions"})
		if err != nil || listErr != nil || now != fence || !slices.Equal(after.Sessions, before.Sessions) {
			t.Fatalf("the victim had fence %v and sessions %v; it has %v, %v and %v, %v", fence, before.Sessions, now, err, after.Sessions, listErr)
		}
		hostile.Attempt(t, "A4", what, "%s; the victim's session %v lives, its lock has fence %v as before", stopped, after.Sessions, now)
	}
	wantUnharmed("deregister another member's process: its incarnation, sent as oneself",
		"the leader took it over a proven connection, and the machine ignored it: the sender's own commands before and after it are applied")
	for _, claimed := range []uint64{victim.GetMember(), 0} {
		name := wire.MemberID(claimed).String()
		mustSucceed(t, c.SendMessage(call(t, theirs, claimed, unused+1, end)))
		line, err := leader.do(order{Do: "logged", Text: "submission of member " + name})
		mustSucceed(t, err)
		wantUnharmed("deregister another member's process: its incarnation, sent as member "+name, "the leader logs "+line.Line)
	}
	holder.must("unlock", "x")
}

// A member cannot declare another one dead by a death that cannot be refuted. The victim's
// session has no TTL, so its gossip check alone could end it. That would take the failure
// detector some seconds: see TestHostile_ForgedDeaths in internal/grouptest/virtualtime.
func TestHostile_ForgedDeath(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	key, record := g.stolen(1)
	i := g.leader()
	leader, holder := g.members[i], g.members[2-i]
	victim := helloOf(t, holder).Theirs
	held, err := holder.do(order{Do: "hold", Lock: "x"})
	mustSucceed(t, err)
	h := hostile.AsMember(key, record, wire.Kind_GOSSIP_PACKETS)
	for _, to := range []*process{leader, holder} {
		packets := g.connectAs(to, key, h)
		mustSucceed(t, packets.Send(hostile.ForgedDeath(victim.GetMember(), victim.GetBoot(), hostile.Final)))
		line, err := to.do(order{Do: "logged", Text: "incarnation too far ahead"})
		mustSucceed(t, err)
		hostile.Attempt(t, "A5", "declare a member dead with incarnation MaxUint32", "dropped: the receiver logs %s", line.Line)
	}
	r, err := leader.do(order{Do: "alive"})
	mustSucceed(t, err)
	now, err := holder.ask("fence", "x")
	if err != nil || now != held.Fence || !r.alive(victim.GetMember()) {
		t.Errorf("the victim's fence is %v, %v, want %v; alive at the leader: %v", now, err, held.Fence, r.Alive)
	}
	hostile.Attempt(t, "A5", "end its session, which only its gossip check can end", "it is alive at the leader, and its lock has fence %v as before", now)
}

// A member cannot make another one allocate what it announces.
func TestHostile_ForgedGossipStates(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	key, record := g.stolen(1)
	stream := g.connectAs(g.members[0], key, hostile.AsMember(key, record, wire.Kind_GOSSIP_STREAM))
	_, err := stream.Write(hostile.ForgedStates())
	mustSucceed(t, err)
	n, err := stream.AwaitClose()
	mustSucceed(t, err)
	if n > 1<<10 { // memberlist's own states would be the answer
		t.Errorf("the member answered with %d bytes", n)
	}
	g.wantWorking(0)
	hostile.Attempt(t, "15", "announce 2^20 states of nodes and 20 MiB of user state", "the connection is closed after %d bytes, and the member works", n)
}
