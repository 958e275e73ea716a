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
	for round := range 6 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, outsider+1, loseQuorumWhileRegistering, grouptest.Newcomers(1))
		})
	}
}
