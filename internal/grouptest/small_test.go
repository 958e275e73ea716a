package grouptest

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// A small member reserves less of its disk, and truncates its log after fewer entries.
func TestSmall(t *testing.T) {
	t.Parallel()
	disk := vfs.NewMem()
	g := Start(t, 1, Edit(func(_ int, c *conclave.Config, s *cluster.Seams) {
		c.Dir, c.Small, s.FS = "data", true, disk
	}))
	n := g.Nodes[0]
	for range 4100 { // one by one, so that each is an entry
		_, err := n.KV().Put(t.Context(), "k", nil)
		Must(t, err)
	}
	if h := g.Member(0).Health(); h.Space.Needed == 0 || h.Space.Needed > 6e6 {
		t.Errorf("needs %d bytes", h.Space.Needed)
	}
	g.Kill(0)
	store, err := storage.Open(storage.Options{Dir: "data", FS: disk, Access: storage.ReadOnly})
	Must(t, err)
	defer store.Close()
	log, err := raftlog.Open(store)
	Must(t, err)
	first, err := log.FirstIndex()
	Must(t, err)
	if first < 2000 {
		t.Errorf("the log begins at %d", first)
	}
}
