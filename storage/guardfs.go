package storage

import (
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardFS passes every mutation of a file system through the guard. Reads, and
// the attempt to lock, go straight through: their errors are answers.
type guardFS struct {
	vfs.FS
	guard *guard
}

func (f *guardFS) Unwrap() vfs.FS { return f.FS }

// file carries out a call that yields a file to write to.
func (f *guardFS) file(op, name string, call func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	ok, err := f.guard.mutate(op, name, func() (err error) {
		file, err = call()
		return err
	})
	if !ok {
		return voidFile{name: f.PathBase(name)}, nil
	}
	if err != nil {
		return nil, err
	}
	return &guardFile{File: file, name: name, guard: f.guard}, nil
}

func (f *guardFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.beforeMarker(name); err != nil {
		return nil, err
	}
	return f.file("create", name, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

func (f *guardFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file("open", name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, opts...) })
}

func (f *guardFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file("reuse", oldname, func() (vfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, category) })
}

// OpenDir opens a directory in order to sync it.
func (f *guardFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &guardFile{File: dir, name: name, guard: f.guard}, nil
}

// beforeMarker puts right what Pebble leaves to the order in which a file system
// makes names durable. It points to a new MANIFEST by the name of a marker, and
// removes the marker before, with one sync of the directory after all of it. So
// that the marker never outlives the file, nor the old one is gone before the
// new one is there, the directory is synced before each of the two steps.
func (f *guardFS) beforeMarker(name string) error {
	if !strings.HasPrefix(f.PathBase(name), "marker.manifest.") {
		return nil
	}
	return syncDirectory(f, f.PathDir(name))
}

func (f *guardFS) Link(oldname, newname string) error {
	_, err := f.guard.mutate("link", newname, func() error { return f.FS.Link(oldname, newname) })
	return err
}

func (f *guardFS) Remove(name string) error {
	if err := f.beforeMarker(name); err != nil {
		return err
	}
	_, err := f.guard.mutate("remove", name, func() error { return f.FS.Remove(name) })
	return err
}

func (f *guardFS) RemoveAll(name string) error {
	_, err := f.guard.mutate("remove", name, func() error { return f.FS.RemoveAll(name) })
	return err
}

func (f *guardFS) Rename(oldname, newname string) error {
	_, err := f.guard.mutate("rename", oldname, func() error { return f.FS.Rename(oldname, newname) })
	return err
}

func (f *guardFS) MkdirAll(dir string, perm os.FileMode) error {
	_, err := f.guard.mutate("mkdir", dir, func() error { return f.FS.MkdirAll(dir, perm) })
	return err
}
