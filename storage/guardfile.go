package storage

import (
	"io"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardFile passes every mutation of a file through the guard.
type guardFile struct {
	vfs.File
	name  string
	guard *guard
}

func (f *guardFile) Write(p []byte) (n int, err error) {
	ok, err := f.guard.mutate("write", f.name, func() (err error) {
		n, err = f.File.Write(p)
		return err
	})
	if !ok {
		return len(p), nil
	}
	return n, err
}

func (f *guardFile) WriteAt(p []byte, off int64) (n int, err error) {
	ok, err := f.guard.mutate("write", f.name, func() (err error) {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	if !ok {
		return len(p), nil
	}
	return n, err
}

func (f *guardFile) Preallocate(off, length int64) error {
	_, err := f.guard.mutate("preallocate", f.name, func() error { return f.File.Preallocate(off, length) })
	return err
}

func (f *guardFile) Sync() error {
	_, err := f.guard.mutate("sync", f.name, f.File.Sync)
	return err
}

func (f *guardFile) SyncData() error {
	_, err := f.guard.mutate("sync", f.name, f.File.SyncData)
	return err
}

func (f *guardFile) SyncTo(length int64) (full bool, err error) {
	ok, err := f.guard.mutate("sync", f.name, func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	if !ok {
		return true, nil
	}
	return full, err
}

// Close closes the file whatever the guard says, so that no descriptor is kept;
// but where it fails, what was written may be lost.
func (f *guardFile) Close() error {
	err := f.File.Close()
	if err == nil {
		return nil
	}
	_, err = f.guard.mutate("close", f.name, func() error { return err })
	return err
}

// voidFile is what a file that is created after the failure becomes: it takes
// everything and keeps nothing.
type voidFile struct{ name string }

func (voidFile) Close() error                           { return nil }
func (voidFile) Read([]byte) (int, error)               { return 0, io.EOF }
func (voidFile) ReadAt([]byte, int64) (int, error)      { return 0, io.EOF }
func (voidFile) Write(p []byte) (int, error)            { return len(p), nil }
func (voidFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (voidFile) Preallocate(int64, int64) error         { return nil }
func (voidFile) Sync() error                            { return nil }
func (voidFile) SyncTo(int64) (bool, error)             { return true, nil }
func (voidFile) SyncData() error                        { return nil }
func (voidFile) Prefetch(int64, int64) error            { return nil }
func (voidFile) Fd() uintptr                            { return vfs.InvalidFd }
func (f voidFile) Stat() (vfs.FileInfo, error)          { return voidInfo(f), nil }

type voidInfo struct{ name string }

func (i voidInfo) Name() string         { return i.name }
func (voidInfo) Size() int64            { return 0 }
func (voidInfo) Mode() fs.FileMode      { return 0 }
func (voidInfo) ModTime() time.Time     { return time.Time{} }
func (voidInfo) IsDir() bool            { return false }
func (voidInfo) Sys() any               { return nil }
func (voidInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
