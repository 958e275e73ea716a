package grouptest

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// A restart of a member without a quorum helps nothing.
func TestHealth_NoQuorum(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	n := g.Nodes[0]
	AwaitHealth(t, n, "")
	g.Kill(1, 2)
	AwaitHealth(t, n, "leader")
	WantHealth(t, n, true, false)
	awaitReason(t, n, "reaches 1 of 3 voters, no majority: start the others") // its connections may end later than the leader
	g.Start(1, 2)
	AwaitHealth(t, n, "")
}

// awaitReason waits until the reasons for failed checks contain a text.
func awaitReason(t *testing.T, n *conclave.Node, contains string) {
	t.Helper()
	var texts string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); Pass(10 * time.Millisecond) {
		if _, texts = FailedChecks(n); strings.Contains(texts, contains) {
			return
		}
	}
	t.Fatalf("failed checks: %s; want %q", texts, contains)
}

func TestHealth_DiskFailed(t *testing.T) {
	t.Parallel()
	disk := &faultyDisk{kind: errorfs.OpFileSyncData, reason: syscall.EIO}
	g := Start(t, 1, Edit(func(_ int, c *conclave.Config, h *cluster.Seams) {
		c.Dir, h.FS = "data", errorfs.Wrap(vfs.NewMem(), disk)
	}))
	n := g.Nodes[0]
	MustLock(t, n.FencedLock("x"))
	disk.broken.Store(true)
	_, _ = n.FencedLock("y").Lock(t.Context()) // fails when the disk does
	WantHealth(t, n, false, false)
	if text := n.Health().Reasons[0].Text; !strings.Contains(text, "disk failed") || !strings.Contains(text, syscall.EIO.Error()) {
		t.Error(text)
	}
	<-n.Done()
	WantHealth(t, n, false, false)
}

func TestHealth_Standby(t *testing.T) {
	t.Parallel()
	g := Start(t, 2, Newcomers(1))
	g.Start(1)
	AwaitHealth(t, g.Nodes[1], "")
	if role := g.Nodes[1].Status().Role; role != conclave.Standby {
		t.Fatal(role)
	}
}
