package forming

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// useLog calls use with a log on the disk.
func useLog(t *testing.T, disk *vfs.MemFS, use func(*raftlog.Log)) {
	t.Helper()
	store, err := storage.Open(storage.Options{FS: disk, Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log, err := raftlog.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	use(log)
}

// An admission whose endorsements others would not believe is refused.
func TestAdmitted_InvalidEndorsements(t *testing.T) {
	var chain []*wire.Endorsement // of the second member
	for i := range 3 {
		useLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) {
			id, err := identity.Load(log, "group")
			if err != nil {
				t.Fatal(err)
			}
			cluster := bytes.Repeat([]byte{1}, 16)
			if err := id.Save(func(r *wire.Identity) { r.Cluster, r.Endorsements = cluster, chain }); err != nil {
				t.Fatal(err)
			}
			if i < 2 {
				chain = id.Endorse(bytes.Repeat([]byte{9}, 32), uint64(10+10*i))
				return
			}
			m := &Former{cfg: Config{Identity: id}}
			for _, chain := range [][]*wire.Endorsement{chain, slices.Repeat(chain, identity.MaxEndorsements)} {
				err := m.admitted(&wire.Admission{Cluster: cluster, Endorsements: chain})
				if err == nil || !strings.Contains(err.Error(), "invalid endorsements") {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}
