package virtualtime

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A session without a TTL outlives the registration of a client that was partitioned for longer.
// The client learns that the session is not bound to it any more, and not that it has ended:
// Close reports so, and the client attaches the session again.
func TestClient_UnboundWhilePartitioned(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		c := dialOutsider(g, 10*time.Second)
		s := grouptest.MustSession(g.T, c, &conclave.SessionConfig{TTL: conclave.NoTTL})
		grouptest.MustLock(g.T, s.FencedLock("x"))
		g.Net.Isolate(outsider)
		pass(3 * time.Minute)
		g.Net.Rejoin(outsider)
		select {
		case <-s.Done():
		case <-time.After(time.Minute):
			g.T.Fatal("the client does not learn that the session is unbound")
		}
		_, lives := grouptest.FindSession(g.T, g.Nodes[0], s.ID())
		if err := s.Close(grouptest.Within(g.T, time.Minute)); !lives || err == nil {
			g.T.Errorf("the session lives on: %t; Close returns %v", lives, err)
		}
		again, err := c.AttachSession(grouptest.Within(g.T, time.Minute), s.ID())
		grouptest.Must(g.T, err)
		grouptest.Must(g.T, again.Close(grouptest.Within(g.T, time.Minute)))
	}, grouptest.Newcomers(1))
}
