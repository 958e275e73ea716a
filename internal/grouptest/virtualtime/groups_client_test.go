package virtualtime

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A client keeps what it holds in a further group that no member's process uses: the member that renews the client stays registered.
func TestClient_HoldsInGroupUnusedByMembers(t *testing.T) {
	skipIfShort(t)
	inMembershipBubble(t, outsider+1, func(g *membership) {
		g.tenants(0, "a")
		pass(quietAfter) // so that the members' registrations have expired
		for i := range outsider {
			c := grouptest.Dial(g.T, &conclave.ClientConfig{Dial: g.Net.Dialer(outsider)}, g.Nodes[i])
			held := c.WithGroup("a").FencedLock(c.ID().String())
			fence := grouptest.MustLock(g.T, held)
			for minute := range 4 { // a registration lasts for one
				pass(time.Minute)
				if f, err := held.Fence(); f != fence || err != nil {
					g.T.Fatalf("minute %d: fence %v, %v; want %v", minute, f, err, fence)
				}
			}
			grouptest.MustUnlock(g.T, held)
		}
	}, grouptest.Newcomers(1), rareHeartbeats)
}
