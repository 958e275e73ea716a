package virtualtime

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A standalone session on the check process ends when its member's process has crashed, also in a further group that the process has not
// used for so long that its registration there has expired.
func TestProcessCheck_OfIdleGroup(t *testing.T) {
	skipIfShort(t)
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		g.tenants(0, "idle")
		open := func(of *conclave.Group) conclave.SessionID {
			id, err := of.CreateSession(grouptest.Within(t, time.Minute), &conclave.SessionConfig{TTL: conclave.NoTTL, Checks: []string{conclave.ProcessCheck}})
			grouptest.Must(t, err)
			return id
		}
		inDefault, inIdle := open(g.Nodes[1].Group), open(g.Nodes[1].WithGroup("idle"))
		pass(quietAfter)
		g.Kill(1)
		pass(30 * time.Second)
		_, err := g.Nodes[0].SessionInfo(grouptest.Within(t, time.Minute), inDefault)
		grouptest.WantError(t, err, conclave.ErrSessionNotFound)
		_, err = g.Nodes[0].WithGroup("idle").SessionInfo(grouptest.Within(t, time.Minute), inIdle)
		grouptest.WantError(t, err, conclave.ErrSessionNotFound)
		g.Start(1)
		pass(quietAfter)
		g.wantQuiet(1, 0, 1, 2)
	}, rareHeartbeats)
}
