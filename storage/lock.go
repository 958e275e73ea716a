package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// errLocked: a file or directory is locked through another open file.
var errLocked = errors.New("locked by another owner")

// directoryLock keeps every other store out of a directory, in this process and in others.
// It holds two locks.
//
// The one on the directory itself belongs to an open file and to the inode. It depends
// neither on the files in the directory, nor on its name, nor on what else the process
// opens and closes. A network file system may grant it on this machine only.
//
// The one on the file LOCK is what earlier builds take, and what keeps other machines out of
// a network file system. On Linux it is an OFD lock, which conflicts with the record locks
// of those builds; a record lock ends when its process closes any descriptor of the file. On
// Windows it is the only one, and nothing else can open, replace or remove the file.
type directoryLock struct {
	path string
	file io.Closer // LOCK
	dir  *os.File  // nil: the directory is in memory, or the system cannot lock it
	info os.FileInfo
}

func (l *directoryLock) Close() error { return errors.Join(l.file.Close(), l.unlockInode()) }

// lockDirectory locks the directory for this store. A lock that cannot be created is a
// *fs.PathError; any other error means that it is held.
func lockDirectory(fsys *patientFS, path string, access Access) (*directoryLock, error) {
	l := &directoryLock{path: path}
	if err := fsys.do("lock", path, true, l.lockInode(fsys)); err != nil {
		return nil, lockError(path, err)
	}
	var err error
	l.file, err = fsys.Lock(fsys.PathJoin(path, lockName))
	if access == ReadOnly && errors.Is(err, syscall.EROFS) {
		l.file, err = io.NopCloser(nil), nil // through this path no process can write there
	}
	if err != nil {
		return nil, lockError(path, errors.Join(err, l.unlockInode()))
	}
	return l, nil
}

// lockInode returns the function that locks the directory itself.
func (l *directoryLock) lockInode(fsys *patientFS) func() error {
	return func() (err error) {
		if !onDisk(fsys) {
			return nil
		}
		l.dir, err = openLocked(l.path)
		if l.dir == nil || err != nil {
			return err
		}
		if l.info, err = l.dir.Stat(); err != nil {
			err = errors.Join(err, l.unlockInode()) // it is tried again, and this one would be in the way
			l.dir = nil
		}
		return err
	}
}

func (l *directoryLock) unlockInode() error {
	if l.dir == nil {
		return nil
	}
	return errors.Join(unlock(l.dir), l.dir.Close())
}

func lockError(path string, err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return notWritable(path, err)
	}
	return fmt.Errorf("%w: %s: %w: a directory serves one member in one process at a time", ErrInUse, path, err)
}

// check returns an error unless the path still names the directory that is locked. Files are
// opened by their paths; in another directory of that name they may be another store's.
func (l *directoryLock) check() error {
	if l.dir == nil {
		return nil
	}
	info, err := os.Stat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("data directory %s was renamed or removed while a member has it open", l.path)
	case err != nil:
		return err
	case !os.SameFile(info, l.info):
		return fmt.Errorf("data directory %s was replaced by another one while a member has it open", l.path)
	}
	return nil
}
