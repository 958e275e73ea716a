package replica

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
		r := &Replica{inbound: make(chan func(*core.Core), 256)}
		var end context.CancelFunc
		r.cfg.Lifetime, end = context.WithCancel(t.Context())
		ran, returned := 0, new(atomic.Int32)
		for range 3 { // members
			go func() {
				for range 5 {
					r.Enqueue(func(*core.Core) { ran++ }, true)
				}
				returned.Add(1)
			}()
		}
		synctest.Wait()
		for range 5 {
			if len(r.inbound) != 3 {
				t.Errorf("%d large frames are queued for 3 members", len(r.inbound))
			}
			for range 3 { // not drain: a member whose frame is handled sends the next one meanwhile
				(<-r.inbound)(nil)
			}
			synctest.Wait()
		}
		if ran != 15 || len(r.inbound) > 0 {
			t.Errorf("%d frames are handled, want 15, and %d are queued", ran, len(r.inbound))
		}
		for range 100 {
			r.Enqueue(func(*core.Core) {}, false)
		}
		go r.Enqueue(func(*core.Core) {}, true)
		synctest.Wait()
		end()
		synctest.Wait()
		if returned.Load() != 3 || len(r.inbound) != 101 {
			t.Errorf("%d of 3 members continue, %d frames are queued", returned.Load(), len(r.inbound))
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
	evidence := func(processes int) *wire.Frame {
		return &wire.Frame{Body: &wire.Frame_CrashEvidence{CrashEvidence: &wire.CrashEvidence{Processes: make([]*wire.CrashedProcess, processes)}}}
	}
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
		"many processes":   {evidence(2000), true},
		"128 processes":    {evidence(128), false},
		"a digest":         {&wire.Frame{Body: &wire.Frame_Digest{}}, false},
	} {
		if got := IsLarge(row.f); got != row.want {
			t.Errorf("%s is large: %t", name, got)
		}
	}
}
