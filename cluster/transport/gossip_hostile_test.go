package transport

import (
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

// exchangeAs exchanges states with a member as member 3, and returns when they are merged.
func exchangeAs(t *testing.T, to *gossiper, states ...[]byte) {
	t.Helper()
	c, refusal := greetAs(t, to.addr, opening{id: identity(3), kind: wire.Kind_GOSSIP_STREAM})
	defer c.Close()
	if refusal != "" {
		t.Fatal(refusal)
	}
	out := append([]byte{pushPullMessage}, hostile.Pack("Nodes", len(states), "UserStateLen", 0)...)
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
