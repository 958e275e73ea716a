package cluster

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// withLog calls use with a log on the disk.
func withLog(t *testing.T, disk *vfs.MemFS, use func(*raftlog.Log)) {
	t.Helper()
	store, err := storage.Open(storage.Options{FS: disk, Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log, err := raftlog.Open(store, groupNumber)
	if err != nil {
		t.Fatal(err)
	}
	use(log)
}
