package grouptest

import (
	"io/fs"
	"path/filepath"
	"runtime"
	"testing"
)

// HeapInUse returns the bytes of live objects in this process.
func HeapInUse() uint64 {
	runtime.GC()
	runtime.GC() // frees what finalizers and pools kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// DiskInUse returns the bytes of the files in a directory.
func DiskInUse(t testing.TB, dir string) (bytes uint64) {
	t.Helper()
	Must(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // removed while walking
		}
		if info, err := d.Info(); err == nil {
			bytes += uint64(info.Size())
		}
		return nil
	}))
	return bytes
}
