package storage

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Writes do not wait for a flush that the disk holds up, until several tables in memory
// are full.
func TestStore_WritesDuringSlowFlush(t *testing.T) {
	const table = 64 << 10
	flushing, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	slow := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			once.Do(func() { close(flushing) })
			<-release
		}
		return nil
	})
	s := open(t, Options{FS: errorfs.Wrap(vfs.NewMem(), slow), MemTableSize: table})
	written := make(chan error, 1)
	go func() {
		written <- s.Do(func(db *pebble.DB) error {
			for i := range 3 * table / (8 << 10) {
				if err := db.Set(fmt.Appendf(nil, "%d", i), make([]byte, 8<<10), pebble.Sync); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	select {
	case err := <-written:
		if err != nil {
			t.Error(err)
		}
		<-flushing
		close(release)
	case <-time.After(5 * time.Minute):
		close(release)
		t.Errorf("writes wait for the flush: %v", <-written)
	}
}
