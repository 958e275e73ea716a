//go:build unix

package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A directory with a small state takes at most 40 MB, also after a flush that was so slow that
// nearly all tables in memory were full.
func TestStore_Footprint(t *testing.T) {
	release := make(chan struct{})
	slow := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			<-release
		}
		return nil
	})
	dir := t.TempDir()
	s := open(t, Options{Dir: dir, FS: errorfs.Wrap(newPrivateFS(), slow)})
	write := func(bytes int) error {
		return s.Do(func(db *pebble.DB) error {
			const size = 64 << 10
			for i := range bytes / size {
				if err := db.Set(fmt.Append(nil, i%8), make([]byte, size), pebble.NoSync); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := write((maxMemTables - 1) * tableSize)
	close(release)
	for range 2 {
		if err == nil {
			err = write(maxMemTables * tableSize)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Do((*pebble.DB).Flush); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // removes the files that are obsolete
		t.Fatal(err)
	}
	if bytes := allocated(t, dir); bytes > 40e6 {
		t.Errorf("the directory takes %d bytes: %v", bytes, listFiles(t, dir))
	}
}

// allocated returns the bytes that the files of a directory take on the disk.
func allocated(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	for _, name := range listFiles(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		bytes += 512 * int64(info.Sys().(*syscall.Stat_t).Blocks)
	}
	return bytes
}
