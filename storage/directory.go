package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const lockName = "LOCK" // Pebble's name for it

// directory is a data directory that was made ready: it exists, is ours, is
// locked and is marked.
type directory struct {
	path  string
	lock  io.Closer
	fresh bool // nothing was ever acknowledged from here: there is no database yet
}

// openDirectory makes a directory ready for Pebble. A directory of something
// else, or of a newer version, is refused before anything in it is touched.
func openDirectory(fsys vfs.FS, path string) (*directory, error) {
	if err := makeDirectory(fsys, path); err != nil {
		return nil, err
	}
	path, err := canonical(fsys, path)
	if err != nil {
		return nil, err
	}
	if _, err := readDirectory(fsys, path); err != nil {
		return nil, err
	}
	lock, err := lockDirectory(fsys, path)
	if err != nil {
		return nil, err
	}
	d := &directory{path: path, lock: lock}
	if err := d.prepare(fsys); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// canonical returns the one spelling of a path. A lock is the process's, so two
// spellings would both get it.
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

// makeDirectory creates the directory where it is missing, and its parents, and
// makes each new name durable.
func makeDirectory(fsys vfs.FS, path string) error {
	info, err := fsys.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is a file; the data directory has to be a directory", path)
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
		return fmt.Errorf("create the data directory %s: %w", path, err)
	}
	return syncDirectory(fsys, parent)
}

func syncDirectory(fsys vfs.FS, path string) error {
	dir, err := fsys.OpenDir(path)
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// lockDirectory takes the directory for this store. The file system tells the
// three cases apart badly: a lock file that cannot be made is a *fs.PathError,
// a lock that somebody has is any other error.
func lockDirectory(fsys vfs.FS, path string) (io.Closer, error) {
	lock, err := fsys.Lock(fsys.PathJoin(path, lockName))
	var pathError *fs.PathError
	switch {
	case err == nil:
		return lock, nil
	case errors.As(err, &pathError):
		return nil, fmt.Errorf("data directory %s is not writable: %w", path, err)
	}
	return nil, fmt.Errorf("%w: %s (%w); a directory serves one member in one process at a time", ErrInUse, path, err)
}
