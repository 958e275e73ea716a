//go:build !linux

package storage

import (
	"errors"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lockFile locks a file, which it creates if it is missing.
func lockFile(name string) (io.Closer, error) {
	if err := createPrivate(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return vfs.Default.Lock(name)
}
