package transport

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A member that is not reached, and reaches this one, is reported once in an outage.
func TestPeer_ReachedOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		var j journal
		var cut atomic.Bool
		a := start(t, identity(1), n.listen("a"), func(c *Config) {
			c.Logger = j.logger()
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				if cut.Load() {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return n.dial(ctx, addr)
			}
		})
		const line = `level=WARN msg="a member reaches this one and is not reached" member=`
		b := inMemory(t, n, identity(2), "b")
		b.SetPeer(m(1), "a")
		a.SetPeer(m(2), "b")
		awaitConnected(t, a, m(2))
		cut.Store(true)
		b.Close()
		time.Sleep(time.Minute)
		if j.count(line) != 0 {
			t.Errorf("a member that is down:\n%v", &j)
		}
		for range 2 { // outages
			before := j.count(line)
			c := inMemory(t, n, identity(2), "b")
			c.SetPeer(m(1), "a")
			awaitConnected(t, c, m(1))
			time.Sleep(time.Minute)
			if j.count(line) != before+1 || j.count("remedy=\"check the firewall") != before+1 {
				t.Errorf("a member that dials this one:\n%v", &j)
			}
			cut.Store(false)
			a.Redial(m(2))
			awaitConnected(t, a, m(2))
			cut.Store(true)
			c.Close()
			time.Sleep(time.Minute)
		}
	})
}
