package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const lockName = "LOCK" // Pebble's name for it

// directory is a data directory that is locked and has a marker file.
type directory struct {
	path  string
	lock  io.Closer
	fresh bool // there is no database yet: nothing was ever acknowledged from here
}

// openDirectory locks the directory and prepares it for Pebble. It refuses a
// directory of another program or of a newer version before it changes anything
// in it.
func openDirectory(fsys vfs.FS, path string, access Access) (*directory, error) {
	if access == OpenOrCreate || access == Fill {
		if err := makeDirectory(fsys, path); err != nil {
			return nil, err
		}
	}
	path, err := canonical(fsys, path)
	if err != nil {
		return nil, err
	}
	if _, err := readFor(fsys, path, access); err != nil {
		return nil, err
	}
	lock, err := lockDirectory(fsys, path)
	if access == ReadOnly && errors.Is(err, syscall.EROFS) {
		lock, err = io.NopCloser(nil), nil // no process can write there
	}
	if err != nil {
		return nil, err
	}
	d := &directory{path: path, lock: lock}
	if err := d.prepare(fsys, access); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// canonical resolves a path to its only spelling. A file lock belongs to the
// process, so that two spellings of one directory would both be granted it.
func canonical(fsys vfs.FS, path string) (string, error) {
	if fsys != vfs.Default {
		return path, nil
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// makeDirectory creates the directory and its parents where they are missing,
// and syncs the parent of each.
func makeDirectory(fsys vfs.FS, path string) error {
	info, err := fsys.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("data directory %s is a file: set Dir to a directory", path)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("data directory: %w", err)
	}
	parent := fsys.PathDir(path)
	if parent != path {
		if err := makeDirectory(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("create data directory %s: %w", path, err)
	}
	return syncDirectory(fsys, parent)
}

func syncDirectory(fsys vfs.FS, path string) error {
	dir, err := fsys.OpenDir(path)
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}

// lockDirectory locks the directory for this store. A lock file that cannot be
// created is a *fs.PathError; any other error means that the lock is taken.
func lockDirectory(fsys vfs.FS, path string) (io.Closer, error) {
	lock, err := fsys.Lock(fsys.PathJoin(path, lockName))
	var pathError *fs.PathError
	switch {
	case err == nil:
		return lock, nil
	case errors.As(err, &pathError):
		return nil, notWritable(path, err)
	}
	return nil, fmt.Errorf("%w: %s: %w: a directory serves one member in one process at a time", ErrInUse, path, err)
}

func notWritable(path string, err error) error {
	return fmt.Errorf("data directory %s is not writable: %w", path, err)
}
