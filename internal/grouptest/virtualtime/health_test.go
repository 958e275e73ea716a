package virtualtime

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A loop that hangs makes a restart useful, but not before the group has had more than
// enough time to go on without the member.
func TestHealth_LoopHangs(t *testing.T) {
	t.Parallel()
	grouptest.InBubble(t, 1, func(g *grouptest.Group) {
		n := g.Nodes[0]
		stuck, block, done := make(chan struct{}), make(chan struct{}), make(chan error)
		go func() {
			done <- g.ReadOnLoop(0, func() { close(stuck); <-block })
		}()
		<-stuck
		pass(30 * time.Second)
		grouptest.WantHealth(g.T, n, true, false)
		if failed, _ := grouptest.FailedChecks(n); failed != "leader" {
			g.T.Error(failed)
		}
		pass(40 * time.Second)
		grouptest.WantHealth(g.T, n, false, false)
		close(block)
		grouptest.Must(g.T, <-done)
		grouptest.AwaitHealth(g.T, n, "")
	})
}

// A standby never campaigns, so it keeps a leader that it does not hear any more.
func TestHealth_StandbyPartitioned(t *testing.T) {
	t.Parallel()
	grouptest.InBubble(t, 2, func(g *grouptest.Group) {
		g.Start(1)
		grouptest.AwaitHealth(g.T, g.Nodes[1], "")
		g.Net.Partition(0, 1)
		pass(3 * grouptest.BubbleElection)
		if failed, texts := grouptest.FailedChecks(g.Nodes[1]); failed != "leader" || !strings.Contains(texts, "leader member-0 ("+g.ID(0).String()+") has not been heard") {
			g.T.Error(failed, texts)
		}
		grouptest.WantHealth(g.T, g.Nodes[0], true, true)
		g.Net.Heal(0, 1)
		grouptest.AwaitHealth(g.T, g.Nodes[1], "")
	}, grouptest.Newcomers(1))
}

// A member that needs a snapshot is not ready as soon as it hears the leader again, and has
// applied as much as that one's heartbeats tell, but when it has the state.
func TestHealth_SnapshotReceived(t *testing.T) {
	t.Parallel()
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		x := (leader + 1) % 3
		g.Disconnect(x)
		pass(3 * grouptest.BubbleElection)
		grouptest.WantHealth(g.T, g.Nodes[x], true, false)
		value := make([]byte, 256<<10)
		for i := range 40 {
			grouptest.MustPut(g.T, g.Nodes[leader].KV(), string(rune('a'+i)), string(value))
		}
		behind := g.Nodes[leader].Status().Commit
		g.Net.Throttle(leader, x, 1<<20) // the snapshot takes 10 seconds
		g.Net.Rejoin(x)
		waited := 0
		for installed := g.Installed(x); !g.Nodes[x].Health().Ready; pass(grouptest.BubbleHeartbeat) {
			if waited++; waited > 1000 {
				g.T.Fatalf("not ready: %+v, %d snapshots", g.Nodes[x].Health(), g.Installed(x)-installed)
			}
		}
		if applied := g.Nodes[x].Status().Applied; applied < behind {
			g.T.Errorf("ready with %d entries applied; want %d", applied, behind)
		}
	}, grouptest.ShortLog)
}

// A node that is being closed gets no more traffic, and is not killed before it has ended
// its sessions. Without the other voter, Close waits for an answer of the group.
func TestHealth_Closing(t *testing.T) {
	t.Parallel()
	grouptest.InBubble(t, 2, func(g *grouptest.Group) {
		n := g.Nodes[0]
		grouptest.MustLock(g.T, n.FencedLock("held"))
		g.Net.Isolate(1)
		closed := make(chan error)
		go func() { closed <- n.Close(grouptest.Within(g.T, time.Minute)) }()
		pass(time.Millisecond)
		grouptest.WantHealth(g.T, n, true, false)
		if failed, _ := grouptest.FailedChecks(n); failed != "shutdown" {
			g.T.Error(failed)
		}
		<-closed
		grouptest.WantHealth(g.T, n, false, false)
		g.Nodes[0] = nil
	})
}

// A member stays ready while leadership is transferred among the others, also long after it
// has heard the new leader last.
func TestHealth_LeadershipTransferred(t *testing.T) {
	t.Parallel()
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		pass(10 * grouptest.BubbleElection)
		leader := g.Leader()
		next, x := g.Others(leader)[0], g.Others(leader)[1]
		done := make(chan error, 1)
		go func() { done <- g.Nodes[leader].TransferLeadership(grouptest.Within(g.T, time.Minute), g.ID(next)) }()
		for end := time.Now().Add(3 * grouptest.BubbleElection); time.Now().Before(end); pass(time.Millisecond) {
			if failed, texts := grouptest.FailedChecks(g.Nodes[x]); failed != "" {
				g.T.Fatalf("%s: %s", failed, texts)
			}
		}
		grouptest.Must(g.T, <-done)
	})
}

// A follower whose disk hangs lags. It is not restarted for that: the disk would not be
// any faster, and its process may be one of many on it.
func TestHealth_DiskHangs(t *testing.T) {
	t.Parallel()
	disks := make([]*laggingDisk, 3)
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		hung := (g.Leader() + 1) % 3
		l := g.Nodes[g.Leader()].FencedLock("x")
		grouptest.MustLock(g.T, l)
		release := disks[hung].hang()
		defer release()
		grouptest.MustUnlock(g.T, l)
		text := grouptest.AwaitHealth(g.T, g.Nodes[hung], "caught-up progress")
		grouptest.WantHealth(g.T, g.Nodes[hung], true, false)
		if !strings.Contains(text, "has been behind for") {
			g.T.Error(text)
		}
		release()
		grouptest.AwaitHealth(g.T, g.Nodes[hung], "")
	}, lagging(disks))
}

// No heartbeat and no gossip shows that disks do not answer. A leader that commits nothing is
// not ready.
func TestHealth_NothingCommitted(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		disks := make([]*laggingDisk, n)
		grouptest.InBubble(t, n, func(g *grouptest.Group) {
			leader := g.Leader()
			grouptest.MustLock(g.T, g.Nodes[leader].FencedLock("x"))
			hung := []int{leader}
			if n > 1 {
				hung = g.Others(leader)
			}
			var releases []func()
			for _, i := range hung {
				releases = append(releases, disks[i].hang())
			}
			granted := make(chan error, 1)
			go func() {
				_, err := g.Nodes[leader].FencedLock("y").Lock(grouptest.Within(g.T, time.Minute))
				granted <- err
			}()
			grouptest.AwaitHealth(g.T, g.Nodes[leader], "progress")
			grouptest.WantHealth(g.T, g.Nodes[leader], true, false)
			for _, release := range releases {
				release()
			}
			grouptest.Must(g.T, <-granted)
			grouptest.AwaitHealth(g.T, g.Nodes[leader], "")
		}, lagging(disks))
	}
}

// smallDisk is a file system that has so many bytes free.
type smallDisk struct {
	vfs.FS
	free *atomic.Uint64
}

func (d smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load()}, nil
}

// A member warns while its next logs and tables may not fit on the disk, and stays ready: the
// other members may be short at the same time. Free space is taken each 10 s.
func TestHealth_DiskAlmostFull(t *testing.T) {
	t.Parallel()
	var free atomic.Uint64
	free.Store(1 << 20)
	var lines *grouptest.Journal
	grouptest.InBubble(t, 1, func(g *grouptest.Group) {
		n := g.Nodes[0]
		text := grouptest.AwaitHealth(g.T, n, "disk")
		grouptest.WantHealth(g.T, n, true, true)
		if !strings.Contains(text, "the disk of data has 1.0 MB left") {
			g.T.Error(text)
		}
		w := httptest.NewRecorder()
		conclavehttp.Health(n).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz?verbose", nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "[!]disk warning: "+text+"\n[+]groups ok\nreadyz check passed\n") {
			g.T.Errorf("%d %s", w.Code, w.Body)
		}
		m := n.Metrics()
		if m.DiskFree != 1<<20 || m.DiskNeeded <= m.DiskFree {
			g.T.Errorf("free %d, needed %d", m.DiskFree, m.DiskNeeded)
		}
		free.Store(m.DiskNeeded + 64<<20) // the database may grow meanwhile
		grouptest.AwaitHealth(g.T, n, "")
		for _, line := range []string{"level=WARN msg=\"disk almost full", "level=INFO msg=\"disk has enough space again"} {
			if _, err := lines.Find(g.T.Context(), 0, line); err != nil {
				g.T.Error(err)
			}
		}
	}, grouptest.Edit(func(_ int, c *conclave.Config, s *cluster.Seams) {
		lines = grouptest.NewJournal() // in the bubble
		c.Logger, s.FS = lines.Logger(), smallDisk{s.FS, &free}
	}))
}
