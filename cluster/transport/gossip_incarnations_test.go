package transport

import (
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/conclave-go/conclave/internal/wire"
)

// The incarnations about process 3.1 and about this process, 1.1, that members 2 and 3 state
// in this order.
func TestIncarnations(t *testing.T) {
	id := identity(1)
	i := newIncarnations(&id)
	three, next, us := wire.ProcessName(m(3), 1), wire.ProcessName(m(3), 2), wire.ProcessName(m(1), 1)
	for _, step := range []struct {
		from, boot uint64
		process    string
		n          uint64
		ok         bool
	}{
		{2, 1, three, maxAhead, true},
		{2, 1, three, maxAhead + 1, false}, // not heard from it yet
		{3, 1, three, 5000, true},          // its own, after it was out of reach
		{2, 1, three, 5000 + maxAhead, true},
		{2, 1, three, 5001 + maxAhead, false},
		{2, 1, three, math.MaxUint32, false},
		{3, 1, next, maxAhead + 1, false}, // its process is another one
		{3, 2, next, 1, true},
		{2, 1, next, 1 + maxAhead, true},
		{2, 1, next, 2 + maxAhead, false},
		{2, 1, three, maxAhead, true}, // the death of the former process
		{3, 2, us, 1 + maxAhead, true},
		{3, 2, us, 2 + 2*maxAhead, true}, // from what the refutation had
		{3, 2, us, 4 + 3*maxAhead, false},
		{3, 2, us, math.MaxUint32, false},
		{2, 1, "m3", maxAhead, true},
		{2, 1, "m3", maxAhead + 1, false},
	} {
		from := identity(step.from)
		from.Boot = step.boot
		if ok := i.accept(&hello{Identity: from}, step.process, step.n); ok != step.ok {
			t.Errorf("%+v: accepted: %v", step, ok)
		}
	}
	if len(i.spoken) != 1 {
		t.Errorf("%d processes are kept, want the latest one of member 3", len(i.spoken))
	}
}

// exchangeAs exchanges states with a member as member 3, and returns when they are merged.
func exchangeAs(t *testing.T, to *gossiper, states ...[]byte) {
	t.Helper()
	c, refusal := greetAs(t, to.addr, opening{id: identity(3), kind: wire.Kind_GOSSIP_STREAM})
	defer c.Close()
	if refusal != "" {
		t.Fatal(refusal)
	}
	out := message(gossipPushPull, pack("Nodes", len(states), "UserStateLen", 0)...)
	for _, s := range states {
		out = append(out, s...)
	}
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil && !isClosed(err) { // memberlist closes it last
		t.Fatal(err)
	}
}

// One message of a faulty member, whatever its incarnation, does not end the refutations of
// another member, nor its exchanges with a third one.
func TestGossip_FarIncarnationOfFaultyMember(t *testing.T) {
	victim := startGossip(t, start(t, identity(1), listenTCP(t), anyMember))
	witness := startGossip(t, start(t, identity(2), listenTCP(t), anyMember))
	join := func() {
		t.Helper()
		if _, err := victim.list.Join([]string{processOf(witness.node) + "/" + witness.addr}); err != nil {
			t.Fatal(err)
		}
	}
	join()
	state := func(incarnation uint32, state int) []byte {
		self := victim.list.LocalNode()
		return pack("Name", self.Name, "Addr", []byte(self.Addr), "Port", int(self.Port), "Meta", []byte("forged"),
			"Incarnation", incarnation, "State", state, "Vsn", []byte{1, 5, 2, 0, 0, 0})
	}
	for _, incarnation := range []uint32{1 << 30, 1 << 31, math.MaxUint32 - 1, math.MaxUint32, maxAhead, 2 * maxAhead} {
		for _, to := range []*gossiper{witness, victim} {
			exchangeAs(t, to, state(incarnation, int(memberlist.StateAlive)))
			exchangeAs(t, to, state(incarnation, int(memberlist.StateDead)))
		}
		join()
		await(t, func() error { return hasMeta(witness, processOf(victim.node)) })
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
