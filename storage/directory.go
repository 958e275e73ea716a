package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const lockName = "LOCK" // Pebble's name for it

// directory is a data directory that is locked and has a marker file.
type directory struct {
	path  string
	lock  *directoryLock
	fresh bool // there is no database yet: nothing was ever acknowledged from here
}

// openDirectory locks the directory and prepares it for Pebble. It refuses a
// directory of another program or of a newer version before it changes anything
// in it.
func openDirectory(fsys *patientFS, options Options) (*directory, error) {
	path, access := options.Dir, options.Access
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
	lock, err := lockDirectory(fsys, path, access)
	if err != nil {
		return nil, err
	}
	d := &directory{path: path, lock: lock}
	if err = lock.check(); err == nil {
		err = d.prepare(fsys, access)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if access != ReadOnly && onDisk(fsys) {
		restrictFiles(fsys, path, options.Logger)
	}
	return d, nil
}

// canonical resolves a path to its only spelling. A record lock belongs to the
// process, so that two spellings of one directory would both be granted it.
func canonical(fsys vfs.FS, path string) (string, error) {
	if !onDisk(fsys) {
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

func notWritable(path string, err error) error {
	if isShortage(err, true) {
		return fmt.Errorf("data directory %s: %w: raise the process's limit", path, err)
	}
	return fmt.Errorf("data directory %s is not writable: %w", path, err)
}
