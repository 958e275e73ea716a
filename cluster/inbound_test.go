package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// Each member has one large frame in the loop's queue, whatever it sends. Small ones fill the queue.
func TestEnqueue_LargeFramesOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Member{inbound: make(chan func(*core.Core), 256)}
		m.lifetime, m.end = context.WithCancelCause(t.Context())
		ran, returned := 0, new(atomic.Int32)
		for range 3 { // members
			go func() {
				for range 5 {
					m.enqueue(func(*core.Core) { ran++ }, true)
				}
				returned.Add(1)
			}()
		}
		synctest.Wait()
		for range 5 {
			if len(m.inbound) != 3 {
				t.Errorf("%d large frames are queued for 3 members", len(m.inbound))
			}
			for range 3 { // not drain: a member whose frame is handled sends the next one meanwhile
				(<-m.inbound)(nil)
			}
			synctest.Wait()
		}
		if ran != 15 || len(m.inbound) > 0 {
			t.Errorf("%d frames are handled, want 15, and %d are queued", ran, len(m.inbound))
		}
		for range 100 {
			m.enqueue(func(*core.Core) {}, false)
		}
		go m.enqueue(func(*core.Core) {}, true)
		synctest.Wait()
		m.end(errClosed)
		synctest.Wait()
		if returned.Load() != 3 || len(m.inbound) != 101 {
			t.Errorf("%d of 3 members continue, %d frames are queued", returned.Load(), len(m.inbound))
		}
	})
}

func TestIsLarge(t *testing.T) {
	calls := func(n, size int) *wire.Frame {
		s := new(wire.Submission)
		for range n {
			s.Calls = append(s.Calls, &wire.Call{Command: make([]byte, size)})
		}
		return &wire.Frame{Body: &wire.Frame_Submission{Submission: s}}
	}
	members := &wire.Membership{Members: make([]*wire.VouchedMember, 2000)}
	for name, row := range map[string]struct {
		f    *wire.Frame
		want bool
	}{
		"raft":             {&wire.Frame{Body: &wire.Frame_Raft{Raft: make([]byte, largeFrame)}}, true},
		"raft, smaller":    {&wire.Frame{Body: &wire.Frame_Raft{Raft: make([]byte, largeFrame-1)}}, false},
		"256 calls":        {calls(256, 100), false},
		"many empty calls": {calls(2000, 0), true},
		"a large call":     {calls(1, 512<<10), true},
		"many members":     {&wire.Frame{Body: &wire.Frame_Membership{Membership: members}}, true},
		"a digest":         {&wire.Frame{Body: &wire.Frame_Digest{}}, false},
	} {
		if got := isLarge(row.f); got != row.want {
			t.Errorf("%s is large: %t", name, got)
		}
	}
}
