package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

var (
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("the store is closed")
	// ErrCorrupt says that what is on disk is damaged, or that a part which
	// had been acknowledged is gone.
	ErrCorrupt = errors.New("data is damaged")
	// ErrInUse says that another process, or another store of this one, has
	// the directory open.
	ErrInUse = errors.New("directory is in use")
	// ErrNewer says that the data was written by a newer version of conclave.
	ErrNewer = errors.New("data was written by a newer version of conclave")
	// ErrForeign says that the directory holds files of something else.
	ErrForeign = errors.New("directory belongs to something else")
)

// openError gives Pebble's error at opening the class that the floors above
// tell apart. Pebble marks only some damage as such: what neither is of a newer
// format nor comes from the operating system is that its files contradict each
// other, or that one is gone.
func openError(dir string, err error) error {
	var system syscall.Errno
	switch {
	case strings.Contains(err.Error(), "unknown format major version"):
		return fmt.Errorf("%w: %s: %w; run the version that wrote it", ErrNewer, dir, err)
	case errors.As(err, &system) && !errors.Is(err, fs.ErrNotExist) && !pebble.IsCorruptionError(err):
		return fmt.Errorf("open %s: %w", dir, err)
	}
	return fmt.Errorf("%w: %s: %w; move the directory away and let the member join as a new one", ErrCorrupt, dir, err)
}
