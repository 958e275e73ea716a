//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package storage

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openLocked opens and locks a directory. It returns nil where the file system has no such
// locks: LOCK alone guards the directory there.
func openLocked(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return dir, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(errLocked, dir.Close())
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOLCK):
		return nil, dir.Close()
	default:
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: err}, dir.Close())
	}
}

// unlock comes before the close: a child of the process has the descriptor too, between fork
// and exec.
func unlock(dir *os.File) error { return unix.Flock(int(dir.Fd()), unix.LOCK_UN) }
