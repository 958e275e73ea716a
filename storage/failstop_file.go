package storage

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failstopFile is a file whose mutations are subject to failstop.
type failstopFile struct {
	vfs.File
	name     string
	failstop *failstop
}

func (f *failstopFile) Write(p []byte) (n int, err error) {
	ok, err := f.failstop.mutate("write", f.name, func() (err error) {
		n, err = f.File.Write(p)
		return err
	})
	switch {
	case !ok && strings.HasSuffix(f.name, ".sst"):
		// A table that lacks this part must not be read. Pebble writes it again.
		return 0, f.failstop.error()
	case !ok:
		return len(p), nil
	}
	return n, err
}

func (f *failstopFile) WriteAt(p []byte, off int64) (n int, err error) {
	ok, err := f.failstop.mutate("write", f.name, func() (err error) {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	if !ok {
		return len(p), nil
	}
	return n, err
}

func (f *failstopFile) Preallocate(off, length int64) error {
	_, err := f.failstop.mutate("preallocate", f.name, func() error { return f.File.Preallocate(off, length) })
	return err
}

func (f *failstopFile) Sync() error {
	_, err := f.failstop.mutate("sync", f.name, f.File.Sync)
	return err
}

func (f *failstopFile) SyncData() error {
	_, err := f.failstop.mutate("sync", f.name, f.File.SyncData)
	return err
}

func (f *failstopFile) SyncTo(length int64) (full bool, err error) {
	ok, err := f.failstop.mutate("sync", f.name, func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	if !ok {
		return true, nil
	}
	return full, err
}

// Close closes the file also after a failure, so that no descriptor leaks. A
// failed close is a failed mutation: what was written may be lost.
func (f *failstopFile) Close() error {
	err := f.File.Close()
	if err == nil {
		return nil
	}
	_, err = f.failstop.mutate("close", f.name, func() error { return err })
	return err
}
