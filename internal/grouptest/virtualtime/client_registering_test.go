package virtualtime

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/grouptest"
)

// A client whose first member is partitioned from the others, and cannot have it registered, goes
// on with another one.
func TestClient_FirstMemberWithoutQuorum(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		for i := range outsider {
			pass(10 * time.Second)
			for other := range outsider {
				if other != i {
					g.Net.Partition(i, other)
				}
			}
			pass(10 * time.Second)
			for range 4 { // each begins with an address at random
				began := time.Now()
				c := dialOutsider(g, 10*time.Second)
				if d := time.Since(began); d > 5*time.Second {
					g.T.Errorf("Dial takes %v while member %d has no quorum", d, i)
				}
				grouptest.Must(g.T, c.Close(grouptest.Within(g.T, time.Minute)))
			}
			g.Net.Rejoin(i)
		}
	}, grouptest.Newcomers(1))
}

// The group loses its quorum while a client registers again. With the next leader its renewal
// may come first, and must not be taken for the end of the registration that is under way.
// Which comes first is chance.
func TestClient_QuorumLostWhileRegistering(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, outsider+1, loseQuorumWhileRegistering, grouptest.Newcomers(1))
		})
	}
}

func loseQuorumWhileRegistering(g *grouptest.Group) {
	c := dialOutsider(g, 10*time.Second)
	before := c.ID()
	g.Net.Isolate(outsider)
	pass(3 * time.Minute)
	g.Net.Rejoin(outsider)
	for c.ID() == before {
		pass(time.Millisecond)
	}
	registering := c.ID()
	for i := range outsider {
		g.Net.Delay(outsider, i, 200*time.Millisecond) // the member's renewal comes first
	}
	g.Net.Partition(0, 1)
	g.Net.Partition(1, 2)
	g.Net.Partition(2, 0)
	pass(2 * time.Minute)
	for i := range outsider {
		g.Net.Rejoin(i)
	}
	_, err := c.KV().Put(grouptest.Within(g.T, time.Minute), "k", nil)
	grouptest.Must(g.T, err)
	if id := c.ID(); id != registering {
		g.T.Errorf("the client has ID %v, and had %v while it registered", id, registering)
	}
}
