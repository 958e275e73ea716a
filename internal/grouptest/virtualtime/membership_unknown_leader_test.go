package virtualtime

import (
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A member that was down comes back while a member leads that joined meanwhile, which its
// own configuration does not contain.
func TestJoin_ReturnsUnderUnknownLeader(t *testing.T) {
	t.Skip("finding: a member refuses the connections of members that its own configuration does not contain, the leader among them")
	inMembershipBubble(t, 4, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, time.Hour)
		grouptest.Must(t, g.Nodes[0].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 3, ReplaceAfter: 20 * time.Second}))
		g.Kill(2)
		g.Start(3)
		for {
			if v, _ := g.roles(0); slices.Contains(v, 3) && len(v) == 3 {
				break
			}
			grouptest.Pass(100 * time.Millisecond)
		}
		grouptest.Must(t, g.Nodes[0].TransferLeadership(ctx, g.Nodes[3].Status().ID))
		for g.Leader() != 3 {
			grouptest.Pass(100 * time.Millisecond)
		}
		n, err := g.Open(2, 3*time.Minute)
		if err != nil {
			t.Fatalf("the member that returns does not start: %v", err)
		}
		g.Nodes[2] = n
		g.awaitVoters(3, 1)
	}, grouptest.Newcomers(1))
}
