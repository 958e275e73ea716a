package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The marker makes a directory a data directory of conclave: one line with the
// version of the format. It is the first file in it and never changes.
const (
	markerName    = "CONCLAVE"
	markerPrefix  = "conclave data directory, format "
	formatVersion = 1
	lockName      = "LOCK" // Pebble's name for it
)

// directory is a data directory that was made ready: it exists, is ours, is
// locked and is marked.
type directory struct {
	fs   vfs.FS
	path string
	lock io.Closer
}

// openDirectory makes a directory ready for Pebble. A directory of something
// else, or of a newer version, is refused before anything in it is touched.
func openDirectory(fsys vfs.FS, path string) (*directory, error) {
	if err := makeDirectory(fsys, path); err != nil {
		return nil, err
	}
	if fsys == vfs.Default {
		// The lock of a file is the process's, so two spellings of one path
		// would both get it.
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, err
		}
		if path, err = filepath.Abs(real); err != nil {
			return nil, err
		}
	}
	if _, err := checkMarker(fsys, path); err != nil {
		return nil, err
	}
	lock, err := lockDirectory(fsys, path)
	if err != nil {
		return nil, err
	}
	d := &directory{fs: fsys, path: path, lock: lock}
	if err := d.mark(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
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

// checkMarker reads the marker; found is false for a directory with nothing in
// it but what a creation that was cut short leaves behind.
func checkMarker(fsys vfs.FS, path string) (found bool, err error) {
	names, err := fsys.List(path)
	if err != nil {
		return false, fmt.Errorf("data directory: %w", err)
	}
	var foreign string
	for _, name := range names {
		switch name {
		case markerName:
			return true, readMarker(fsys, fsys.PathJoin(path, markerName))
		case lockName, markerName + ".new":
		default:
			foreign = name
		}
	}
	if foreign != "" {
		return false, fmt.Errorf("%w: %s holds %q and no %s; choose an empty directory", ErrForeign, path, foreign, markerName)
	}
	return false, nil
}

func readMarker(fsys vfs.FS, path string) error {
	file, err := fsys.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 4096))
	if err != nil {
		return err
	}
	number, ok := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), markerPrefix)
	version, err := strconv.ParseUint(number, 10, 32)
	switch {
	case !ok || err != nil || version == 0:
		return fmt.Errorf("%w: %s does not say %q and a number", ErrCorrupt, path, markerPrefix)
	case version > formatVersion:
		return fmt.Errorf("%w: %s says format %d, this one knows up to %d; run the version that wrote it", ErrNewer, path, version, formatVersion)
	}
	return nil
}

// mark writes the marker where it is missing. It is renamed into place, so that
// it is never seen half written.
func (d *directory) mark() error {
	found, err := checkMarker(d.fs, d.path) // again: somebody may have been faster to the lock
	if found || err != nil {
		return err
	}
	temporary := d.fs.PathJoin(d.path, markerName+".new")
	file, err := d.fs.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("data directory %s is not writable: %w", d.path, err)
	}
	_, err = fmt.Fprintf(file, "%s%d\n", markerPrefix, formatVersion)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", temporary, err)
	}
	if err := d.fs.Rename(temporary, d.fs.PathJoin(d.path, markerName)); err != nil {
		return fmt.Errorf("rename %s: %w", temporary, err)
	}
	return syncDirectory(d.fs, d.path)
}
