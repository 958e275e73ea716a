package fencing

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock locks the file exclusively until it is closed, unless another open file has the lock.
func tryLock(f *os.File) (locked bool, err error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	switch err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped)); {
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// syncDir does nothing: NTFS keeps the order of names in its journal, and a directory cannot be synced.
func syncDir(string) error { return nil }
