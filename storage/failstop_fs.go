package storage

import (
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failstopFS is a file system whose mutations are subject to failstop, and whose
// directories are too: Pebble cannot undo an Open that fails on them. Reads and Lock are
// not: their errors are results for the caller.
//
// Files that are created after the failure are in memory, in overlay, where Pebble reads
// what it has written: a flush completes, so that a write which waits for it ends. Their
// size is bounded by what Pebble had in memory, since no compaction creates a file.
type failstopFS struct {
	vfs.FS
	disk     *patientFS // FS
	lock     *directoryLock
	failstop *failstop
	overlay  *vfs.MemFS
}

func newFailstopFS(disk *patientFS, lock *directoryLock, f *failstop) *failstopFS {
	return &failstopFS{FS: disk, disk: disk, lock: lock, failstop: f, overlay: vfs.NewMem()}
}

// inPlace returns an error unless the directory that is locked is still in its place.
func (f *failstopFS) inPlace() error { return f.disk.do("stat", f.lock.path, true, f.lock.check) }

// change runs a call on a name in the directory as a mutation.
func (f *failstopFS) change(op, name string, call func() error) (ok bool, err error) {
	return f.failstop.mutate(op, name, func() error {
		if err := f.inPlace(); err != nil {
			return err
		}
		return call()
	})
}

func (f *failstopFS) Unwrap() vfs.FS { return f.FS }

// inOverlay is the path of a file in overlay, which has no directories.
func (f *failstopFS) inOverlay(name string) string { return "/" + f.PathBase(name) }

// file runs a call on name that returns the file newname for writing.
func (f *failstopFS) file(op, name, newname string, call func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	ok, err := f.change(op, name, func() (err error) {
		file, err = call()
		return err
	})
	if !ok {
		return f.overlay.Create(f.inOverlay(newname), vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		return nil, err
	}
	return &failstopFile{File: file, name: newname, failstop: f.failstop}, nil
}

// compactionCategory is Pebble's category of the tables that a compaction writes.
const compactionCategory vfs.DiskWriteCategory = "pebble-compaction"

func (f *failstopFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.beforeMarker(name); err != nil {
		return nil, err
	}
	file, err := f.file("create", name, name, func() (vfs.File, error) { return f.FS.Create(name, category) })
	if failure := f.failstop.error(); failure != nil && category == compactionCategory {
		if err == nil {
			_ = file.Close() // nothing depends on it
		}
		return nil, failure
	}
	return file, err
}

func (f *failstopFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file("open", name, name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, opts...) })
}

func (f *failstopFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file("reuse", oldname, newname, func() (vfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, category) })
}

// Open opens a file for reading.
func (f *failstopFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if f.failstop.error() != nil {
		if file, err := f.overlay.Open(f.inOverlay(name), options...); err == nil {
			return file, nil
		}
	}
	if err := f.inPlace(); err != nil { // a missing table would be taken for damage
		f.failstop.fail(err)
		return nil, err
	}
	return f.FS.Open(name, options...)
}

func (f *failstopFS) Stat(name string) (vfs.FileInfo, error) {
	if f.failstop.error() != nil {
		if info, err := f.overlay.Stat(f.inOverlay(name)); err == nil {
			return info, nil
		}
	}
	return f.FS.Stat(name)
}

// OpenDir opens a directory for syncing it.
func (f *failstopFS) OpenDir(name string) (vfs.File, error) {
	var dir vfs.File
	ok, err := f.change("open directory", name, func() (err error) {
		dir, err = f.FS.OpenDir(name)
		return err
	})
	if !ok {
		return f.overlay.OpenDir("/")
	}
	if err != nil {
		return nil, err
	}
	return &failstopFile{File: dir, name: name, failstop: f.failstop}, nil
}

// List returns, after a failure, an empty directory: what Pebble would do with the names
// is to remove files.
func (f *failstopFS) List(name string) (names []string, err error) {
	_, err = f.change("list directory", name, func() (err error) {
		names, err = f.FS.List(name)
		return err
	})
	return names, err
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
	_, err := f.change("link", newname, func() error { return f.FS.Link(oldname, newname) })
	return err
}

func (f *failstopFS) Remove(name string) error {
	if err := f.beforeMarker(name); err != nil {
		return err
	}
	_, err := f.change("remove", name, func() error { return f.FS.Remove(name) })
	return err
}

func (f *failstopFS) RemoveAll(name string) error {
	_, err := f.change("remove", name, func() error { return f.FS.RemoveAll(name) })
	return err
}

func (f *failstopFS) Rename(oldname, newname string) error {
	_, err := f.change("rename", oldname, func() error { return f.FS.Rename(oldname, newname) })
	return err
}

func (f *failstopFS) MkdirAll(dir string, perm os.FileMode) error {
	_, err := f.change("mkdir", dir, func() error { return f.FS.MkdirAll(dir, perm) })
	return err
}
