package memdisk

import (
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Power losses come at any time in the operations that lock a vfs.MemFS twice. With a
// MemFS alone this hangs within a few thousand rounds.
func TestDisk_ClonedDuringOperations(t *testing.T) {
	const rounds = 20_000
	d := New()
	if _, err := d.Create("a", vfs.WriteCategoryUnspecified); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var cloning sync.WaitGroup
	cloning.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				d.CrashClone(vfs.CrashCloneCfg{})
			}
		}
	})
	defer cloning.Wait()
	defer close(over)
	for range rounds {
		lock, err := d.Lock("lock")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := d.ReuseForWrite("a", "b", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := d.Link("b", "a"); err != nil {
			t.Fatal(err)
		}
		if err := d.Remove("b"); err != nil {
			t.Fatal(err)
		}
	}
}
