package transport

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/conclave-go/conclave/internal/wire"
)

// What a process's successor sends follows the loss of the process's connection, also where the handler
// takes its time for that.
func TestPeerLost_PrecedesSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, proceed := newMemNet(), make(chan struct{})
		a := start(t, identity(1), n.listen("a"), func(c *Config) {
			c.Dial = n.dial
			c.Handler = slowLost{c.Handler.(*events), proceed}
		})
		b := inMemory(t, n, identity(2), "b")
		connectAll(t, a, b)
		a.events.await(t, "connected 2 b")
		b.Close()
		synctest.Wait()
		next := identity(2)
		next.Boot, next.Incarnation = 2, wire.ID{2, 2}
		b = inMemory(t, n, next, "b2")
		b.SetPeer(m(1), "a")
		awaitConnected(t, b, m(1))
		b.Send(m(1), raftFrame("new"))
		synctest.Wait()
		close(proceed)
		synctest.Wait()
		var got []string
		for len(a.events.ch) > 0 {
			got = append(got, <-a.events.ch)
		}
		if want := []string{"lost 2", "connected 2 b2 m2", "frame 2 new"}; !slices.Equal(got, want) {
			t.Errorf("reported %q, want %q", got, want)
		}
	})
}

// slowLost is a handler that waits before it handles a loss.
type slowLost struct {
	*events
	proceed chan struct{}
}

func (s slowLost) PeerLost(member uint64) {
	<-s.proceed
	s.events.PeerLost(member)
}
