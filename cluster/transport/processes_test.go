package transport

import (
	"testing"
	"testing/synctest"

	"github.com/conclave-go/conclave/internal/wire"
)

// A member's priority as a leader is that of its process, and unknown once that has ended.
func TestPeer_LeaderPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		want := func(priority int32, connected bool) {
			t.Helper()
			if got, ok := a.LeaderPriority(m(2)); got != priority || ok != connected {
				t.Errorf("priority %d, connected %t; want %d, %t", got, ok, priority, connected)
			}
		}
		want(0, false)
		for boot, priority := range []int32{-100, 7, 0} {
			id := identity(2)
			id.Boot, id.Incarnation, id.LeaderPriority = uint64(boot)+1, wire.ID{2, byte(boot)}, priority
			b := inMemory(t, n, id, "b")
			connectAll(t, a, b)
			want(priority, true)
			b.Close()
			synctest.Wait()
			want(0, false)
		}
	})
}
