package storage

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// patientFS is a file system whose calls wait out shortages of the process, below failstopFS,
// which therefore sees failures of the disk only. When nothing waits any more, it returns the
// shortage, which ends the store like a failure, with all that was acknowledged.
type patientFS struct {
	vfs.FS
	patience *patience
}

func (f *patientFS) Unwrap() vfs.FS { return f.FS }

// do runs a call that leaves nothing changed when it fails with a shortage. unchanged also
// holds for ENOMEM.
func (f *patientFS) do(op, name string, unchanged bool, call func() error) error {
	err := call()
	if err == nil || !isShortage(err, unchanged) {
		return err
	}
	return f.patience.again(op, name, unchanged, err, call)
}

func (f *patientFS) file(op, name string, call func() (vfs.File, error)) (file vfs.File, err error) {
	err = f.do(op, name, true, func() error {
		file, err = call()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &patientFile{File: file, name: name, patience: f.patience}, nil
}

func (f *patientFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file("create", name, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

func (f *patientFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	return f.file("open", name, func() (vfs.File, error) { return f.FS.Open(name, options...) })
}

func (f *patientFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return f.file("open", name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, options...) })
}

func (f *patientFS) OpenDir(name string) (vfs.File, error) {
	return f.file("open directory", name, func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

// ReuseForWrite renames and opens a file. If the first call has renamed it and failed to open
// it, the second finds the new name only.
func (f *patientFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	again := false
	return f.file("reuse", oldname, func() (vfs.File, error) {
		if again {
			switch _, err := f.FS.Stat(oldname); {
			case errors.Is(err, fs.ErrNotExist):
				return f.FS.OpenReadWrite(newname, category)
			case err != nil:
				return nil, err
			}
		}
		again = true
		return f.FS.ReuseForWrite(oldname, newname, category)
	})
}

func (f *patientFS) Link(oldname, newname string) error {
	return f.do("link", newname, false, func() error { return f.FS.Link(oldname, newname) })
}

func (f *patientFS) Remove(name string) error {
	return f.do("remove", name, false, func() error { return f.FS.Remove(name) })
}

func (f *patientFS) RemoveAll(name string) error {
	return f.do("remove", name, false, func() error { return f.FS.RemoveAll(name) })
}

func (f *patientFS) Rename(oldname, newname string) error {
	return f.do("rename", oldname, false, func() error { return f.FS.Rename(oldname, newname) })
}

func (f *patientFS) MkdirAll(name string, perm os.FileMode) error {
	return f.do("mkdir", name, false, func() error { return f.FS.MkdirAll(name, perm) })
}

func (f *patientFS) Lock(name string) (lock io.Closer, err error) {
	err = f.do("lock", name, true, func() error {
		lock, err = f.FS.Lock(name)
		return err
	})
	return lock, err
}

func (f *patientFS) List(name string) (names []string, err error) {
	err = f.do("list directory", name, true, func() error {
		names, err = f.FS.List(name)
		return err
	})
	return names, err
}

func (f *patientFS) Stat(name string) (info vfs.FileInfo, err error) {
	err = f.do("stat", name, true, func() error {
		info, err = f.FS.Stat(name)
		return err
	})
	return info, err
}

func (f *patientFS) GetDiskUsage(name string) (usage vfs.DiskUsage, err error) {
	err = f.do("disk usage", name, true, func() error {
		usage, err = f.FS.GetDiskUsage(name)
		return err
	})
	return usage, err
}
