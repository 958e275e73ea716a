//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fencing

import (
	"errors"
	"os"

	"syscall"
)

// tryLock locks the file exclusively until it is closed, unless another open file has the lock.
func tryLock(f *os.File) (locked bool, err error) {
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, syscall.EINTR):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// syncDir makes the names in a directory durable, as far as the file system can do that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
