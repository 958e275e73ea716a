package virtualtime

import (
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A member that reaches a majority, but not the leader, names the leader that it cannot
// reach.
func TestUnavailable_NamesUnreachableLeader(t *testing.T) {
	t.Parallel()
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		x, other := (leader+1)%3, (leader+2)%3
		g.Net.Partition(leader, x)
		pass(20 * time.Second) // until the connections are found dead
		if now := g.Nodes[other].Status().Leader; now != g.Nodes[leader].Status().ID {
			g.T.Fatalf("the leader is %v", now)
		}
		_, lockErr := g.Nodes[x].FencedLock("x").Lock(grouptest.Within(g.T, time.Second))
		_, readErr := g.Nodes[x].KV().Get(grouptest.Within(g.T, time.Second), "k")
		for _, err := range []error{lockErr, readErr} {
			grouptest.WantError(g.T, err, conclave.ErrUnavailable)
			for _, want := range []string{g.Nodes[leader].Status().ID.String(), g.Configs[leader].Name, "reaches 2 of 3 voters"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					g.T.Errorf("%v does not contain %q", err, want)
				}
			}
		}
		g.Net.Heal(leader, x)
		grouptest.MustLock(g.T, g.Nodes[x].FencedLock("x"))
	})
}
