package storage

import (
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failstopFS is a file system whose mutations are subject to failstop. Reads and
// Lock are not: their errors are results for the caller.
type failstopFS struct {
	vfs.FS
	failstop *failstop
}

func (f *failstopFS) Unwrap() vfs.FS { return f.FS }

// file runs a call that returns a file for writing.
func (f *failstopFS) file(op, name string, call func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	ok, err := f.failstop.mutate(op, name, func() (err error) {
		file, err = call()
		return err
	})
	if !ok {
		return discardFile{name: f.PathBase(name)}, nil
	}
	if err != nil {
		return nil, err
	}
	return &failstopFile{File: file, name: name, failstop: f.failstop}, nil
}

func (f *failstopFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.beforeMarker(name); err != nil {
		return nil, err
	}
	return f.file("create", name, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

func (f *failstopFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file("open", name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, opts...) })
}

func (f *failstopFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file("reuse", oldname, func() (vfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, category) })
}

// OpenDir opens a directory for syncing it.
func (f *failstopFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &failstopFile{File: dir, name: name, failstop: f.failstop}, nil
}

// beforeMarker closes a gap in Pebble's use of directory syncs. The name of a
// marker file points to the current MANIFEST; Pebble creates the MANIFEST,
// creates the new marker and removes the old one, and syncs the directory once
// at the end. A file system may make these names durable in any order. Syncing
// before each of the last two steps ensures that no durable marker points to a
// missing MANIFEST, and that one marker is always durable.
func (f *failstopFS) beforeMarker(name string) error {
	if !strings.HasPrefix(f.PathBase(name), "marker.manifest.") {
		return nil
	}
	return syncDirectory(f, f.PathDir(name))
}

func (f *failstopFS) Link(oldname, newname string) error {
	_, err := f.failstop.mutate("link", newname, func() error { return f.FS.Link(oldname, newname) })
	return err
}

func (f *failstopFS) Remove(name string) error {
	if err := f.beforeMarker(name); err != nil {
		return err
	}
	_, err := f.failstop.mutate("remove", name, func() error { return f.FS.Remove(name) })
	return err
}

func (f *failstopFS) RemoveAll(name string) error {
	_, err := f.failstop.mutate("remove", name, func() error { return f.FS.RemoveAll(name) })
	return err
}

func (f *failstopFS) Rename(oldname, newname string) error {
	_, err := f.failstop.mutate("rename", oldname, func() error { return f.FS.Rename(oldname, newname) })
	return err
}

func (f *failstopFS) MkdirAll(dir string, perm os.FileMode) error {
	_, err := f.failstop.mutate("mkdir", dir, func() error { return f.FS.MkdirAll(dir, perm) })
	return err
}
