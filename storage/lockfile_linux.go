package storage

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// fileLock is an OFD lock.
type fileLock struct{ file *os.File }

// Close unlocks the file before it closes it; see unlock.
func (l fileLock) Close() error {
	return errors.Join(unix.FcntlFlock(l.file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart}), l.file.Close())
}

// lockFile locks a file, which it creates if it is missing.
func lockFile(name string) (io.Closer, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, privateFile)
	if err != nil {
		return nil, err
	}
	restrict(file)
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})
	switch {
	case err == nil:
		return fileLock{file}, nil
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return nil, errors.Join(errLocked, file.Close())
	case errors.Is(err, unix.EINVAL): // a kernel without OFD locks
		if err := file.Close(); err != nil {
			return nil, err
		}
		return vfs.Default.Lock(name)
	}
	return nil, errors.Join(&fs.PathError{Op: "lock", Path: name, Err: err}, file.Close())
}
