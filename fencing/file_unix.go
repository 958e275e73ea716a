//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fencing

import (
	"errors"
	"os"

	"syscall"
)

// flock locks the file exclusively until it is closed. It blocks until no other open file has the lock.
func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
