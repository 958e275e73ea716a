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
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("store closed")
	// ErrCorrupt: data on disk is damaged, or acknowledged data is missing.
	ErrCorrupt = errors.New("corrupt data")
	// ErrInUse: another process, or another store of this process, has the
	// directory open.
	ErrInUse = errors.New("directory in use")
	// ErrNewer: the data has a format of a newer version of conclave.
	ErrNewer = errors.New("data written by a newer version of conclave")
	// ErrForeign: the directory contains files of another program, or no member's data.
	ErrForeign = errors.New("not a conclave data directory")
	// ErrNotEmpty: a directory that is to be filled has content.
	ErrNotEmpty = errors.New("directory is not empty")
	// ErrUnfinished: filling the directory was interrupted.
	ErrUnfinished = errors.New("directory is unfinished")
)

// NewGroupWarning is the part of an error message that warns of starting over
// with an empty directory.
const NewGroupWarning = "with an empty directory it joins its group as a new member; a new group would restart fences at 1, " +
	"so that a resource which has seen larger fences refuses every holder"

// CorruptAdvice is the part of an error message that states what to do about a
// data directory from which a member must not start.
const CorruptAdvice = "keep the directory and run the group on its other members; " + NewGroupWarning

// openError classifies Pebble's error on opening a database. Pebble marks only
// part of the damage as corruption: files that are missing or contradict each
// other are damage as well, unless the format is newer or the error is the
// operating system's.
func openError(dir string, err error) error {
	var system syscall.Errno
	switch {
	case strings.Contains(err.Error(), "unknown format major version"):
		return fmt.Errorf("%w: %s: %w: run the version that wrote it", ErrNewer, dir, err)
	case errors.As(err, &system) && !errors.Is(err, fs.ErrNotExist) && !pebble.IsCorruptionError(err):
		return fmt.Errorf("database in %s: %w", dir, err)
	}
	return fmt.Errorf("%w: %s: %w: %s", ErrCorrupt, dir, err, CorruptAdvice)
}
