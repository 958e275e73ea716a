package storage

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The modes of what a store creates, whatever the process's umask is: the files contain the
// member's private key and all values of the group.
const (
	privateFile = 0o600
	privateDir  = 0o700
	others      = 0o077 // the bits of the group and of other users
)

// privateFS is the operating system's file system, on which what is created is accessible to
// the process's user only. Pebble's creates files with mode 0666, less the umask.
type privateFS struct{ vfs.FS }

func newPrivateFS() privateFS { return privateFS{vfs.Default} }

// onDisk reports whether a file system is the operating system's, perhaps wrapped.
func onDisk(fsys vfs.FS) bool {
	root := vfs.Root(fsys)
	_, private := root.(privateFS)
	return private || root == vfs.Default
}

// createPrivate creates an empty file. Its mode is right before it has content, also if
// others may search the directory. It returns fs.ErrExist if there is a file.
func createPrivate(name string) error {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, privateFile)
	if err != nil {
		return err
	}
	restrict(file)
	return file.Close()
}

// restrict corrects the mode of a new file, from which the umask may have taken bits that
// its user needs. A file system without modes refuses that, and restrictFiles reports it.
func restrict(file *os.File) {
	if info, err := file.Stat(); err == nil && info.Mode().Perm() != privateFile {
		_ = file.Chmod(privateFile)
	}
}

func (f privateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	err := createPrivate(name)
	for errors.Is(err, fs.ErrExist) { // replaced, not truncated: it may have other links
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		err = createPrivate(name)
	}
	if err != nil {
		return nil, err
	}
	file, err := f.FS.OpenReadWrite(name, category)
	if err != nil {
		return nil, errors.Join(err, os.Remove(name))
	}
	return file, nil
}

func (f privateFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	if err := createPrivate(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return f.FS.OpenReadWrite(name, category, options...)
}

// MkdirAll creates directories that only their user may enter.
func (f privateFS) MkdirAll(path string, _ os.FileMode) error {
	if _, err := os.Stat(path); err == nil {
		return f.FS.MkdirAll(path, privateDir) // nil, unless it is a file
	}
	if err := f.FS.MkdirAll(path, privateDir); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm() != privateDir {
		_ = os.Chmod(path, privateDir|info.Mode()&os.ModeSetgid)
	}
	return err
}

func (f privateFS) Lock(name string) (io.Closer, error) { return lockFile(name) }

// restrictFiles takes access to the files of a directory from other users: earlier builds
// created them with the umask's mode. It warns of what others could have read, and of a
// directory or file that is still open to them. It refuses nothing: the modes of a volume may
// not be the process's to change, such as those that Kubernetes sets for a group.
func restrictFiles(fsys *patientFS, path string, log *slog.Logger) {
	info, err := os.Stat(path)
	if err != nil || !hasModes {
		return // what uses the directory next reports it
	}
	if info.Mode().Perm()&others != 0 {
		log.Warn("data directory is open to other users", "dir", path, "mode", info.Mode().Perm().String())
	}
	names, err := fsys.List(path) // in which the process may lack descriptors
	if err != nil {
		log.Warn("data files may be open to other users", "dir", path, "error", err)
		return
	}
	restricted, open := restrictEach(path, names)
	if len(restricted) > 0 {
		log.Warn("data files were open to other users", "dir", path, "files", restricted)
	}
	if len(open) > 0 {
		log.Warn("data files are open to other users", "dir", path, "files", open)
	}
}

// restrictEach returns the files that were open to other users, and those that still are.
func restrictEach(path string, names []string) (restricted, open []string) {
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(path, name))
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&others == 0 {
			continue
		}
		if os.Chmod(filepath.Join(path, name), info.Mode().Perm()&^others) == nil {
			restricted = append(restricted, name)
		} else {
			open = append(open, name)
		}
	}
	return restricted, open
}
