package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

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
// tell apart. A file that Pebble knows of and that is gone is damage too.
func openError(dir string, err error) error {
	switch {
	case pebble.IsCorruptionError(err), errors.Is(err, fs.ErrNotExist), errors.Is(err, pebble.ErrDBNotPristine):
		return fmt.Errorf("%w: %s: %w; restore the directory from a copy, or move it away and let the member join anew", ErrCorrupt, dir, err)
	case strings.Contains(err.Error(), "unknown format major version"):
		return fmt.Errorf("%w: %s: %w; run the version that wrote it", ErrNewer, dir, err)
	}
	return fmt.Errorf("open %s: %w", dir, err)
}
