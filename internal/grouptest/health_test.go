package grouptest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/conclavehttp"
)

// A restart of a member without a quorum helps nothing.
func TestHealth_NoQuorum(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	n := g.Nodes[0]
	AwaitHealth(t, n, "")
	WantHealth(t, n, true, true)
	g.Kill(1, 2)
	text := AwaitHealth(t, n, "leader")
	WantHealth(t, n, true, false)
	if !strings.Contains(text, "reaches 1 of 3 voters, no majority: start the others") {
		t.Error(text)
	}
	g.Start(1, 2)
	AwaitHealth(t, n, "")
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
	lines := NewJournal()
	g := Start(t, 1, Edit(func(_ int, c *conclave.Config, h *cluster.Seams) {
		c.Dir, c.Logger, h.FS = "data", lines.Logger(), smallDisk{vfs.NewMem(), &free}
	}))
	n := g.Nodes[0]
	text := AwaitHealth(t, n, "disk")
	WantHealth(t, n, true, true)
	if !strings.Contains(text, "the disk of data has 1.0 MB left") {
		t.Error(text)
	}
	if w := probe(n, "/readyz?verbose"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "[!]disk warning: "+text+"\nreadyz check passed\n") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	m := n.Metrics()
	if m.DiskFree != 1<<20 || m.DiskNeeded <= m.DiskFree {
		t.Errorf("free %d, needed %d", m.DiskFree, m.DiskNeeded)
	}
	free.Store(m.DiskNeeded + 64<<20) // the database may grow meanwhile
	AwaitHealth(t, n, "")
	for _, line := range []string{"level=WARN msg=\"disk almost full", "level=INFO msg=\"disk has enough space again"} {
		if _, err := lines.Find(t.Context(), 0, line); err != nil {
			t.Error(err)
		}
	}
}

func probe(n *conclave.Node, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	conclavehttp.Health(n).ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}
