package storage

import (
	"io"
	"io/fs"
	"time"

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
	if !ok {
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

// discardFile is what creating a file after the failure returns: it accepts and
// discards all writes.
type discardFile struct{ name string }

func (discardFile) Close() error                           { return nil }
func (discardFile) Read([]byte) (int, error)               { return 0, io.EOF }
func (discardFile) ReadAt([]byte, int64) (int, error)      { return 0, io.EOF }
func (discardFile) Write(p []byte) (int, error)            { return len(p), nil }
func (discardFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (discardFile) Preallocate(int64, int64) error         { return nil }
func (discardFile) Sync() error                            { return nil }
func (discardFile) SyncTo(int64) (bool, error)             { return true, nil }
func (discardFile) SyncData() error                        { return nil }
func (discardFile) Prefetch(int64, int64) error            { return nil }
func (discardFile) Fd() uintptr                            { return vfs.InvalidFd }
func (f discardFile) Stat() (vfs.FileInfo, error)          { return discardInfo(f), nil }

type discardInfo struct{ name string }

func (i discardInfo) Name() string         { return i.name }
func (discardInfo) Size() int64            { return 0 }
func (discardInfo) Mode() fs.FileMode      { return 0 }
func (discardInfo) ModTime() time.Time     { return time.Time{} }
func (discardInfo) IsDir() bool            { return false }
func (discardInfo) Sys() any               { return nil }
func (discardInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
