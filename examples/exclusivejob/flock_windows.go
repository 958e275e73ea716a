package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// flock locks the file exclusively until it is closed or the process ends. It
// blocks until no other process has it locked.
func flock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}
