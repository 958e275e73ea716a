package storage

import (
	"errors"
	"syscall"
)

// Windows's own numbers.
const (
	errorTooManyOpenFiles  syscall.Errno = 4
	errorNoSystemResources syscall.Errno = 1450
)

func isSystemShortage(err error) bool {
	return errors.Is(err, errorTooManyOpenFiles) || errors.Is(err, errorNoSystemResources)
}
