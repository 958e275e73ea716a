package grouptest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave"
)

// The times of a group in a bubble: upper bounds of what its members have.
const (
	BubbleHeartbeat = 104 * time.Millisecond
	BubbleElection  = 10 * BubbleHeartbeat
	BubbleTTL       = 10 * time.Second
)

// heartbeatOf differs between members. In virtual time, members with equal intervals
// would always tick at the same instant, and split the vote whenever they draw the same
// delay.
func heartbeatOf(i int) time.Duration { return time.Duration(100+2*i) * time.Millisecond }

// InBubble runs a test with a group of n members in virtual time, on a network and
// crashable disks in memory. Nothing of a node is replaced: its goroutines, timers,
// transport, gossip and database are those of production. A bubble ends only when
// every goroutine in it has ended; one that hangs ends the process, with a report.
func InBubble(t *testing.T, n int, test func(g *Group), opts ...Option) {
	t.Helper()
	inBubble(t, newWatchdog(), n, test, opts)
}

func inBubble(t *testing.T, w *watchdog, n int, test func(g *Group), opts []Option) {
	t.Helper()
	defer w.watch(t.Name())()
	synctest.Test(t, func(t *testing.T) {
		w.enter()
		g := newGroup(noted{t, &w.failure}, n, append([]Option{MemoryNetwork}, opts...))
		g.inBubble, g.patience, g.interval = true, time.Minute, BubbleHeartbeat/10
		for i := range n {
			g.Seams[i].FS = vfs.NewCrashableMem()
			g.Configs[i] = conclave.Config{
				Name: fmt.Sprint("member-", i), Dir: "data",
				HeartbeatInterval: heartbeatOf(i), ElectionTimeout: 10 * heartbeatOf(i), SessionTTL: BubbleTTL,
			}
		}
		g.form()
		test(g)
	})
}
