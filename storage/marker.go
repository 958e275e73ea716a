package storage

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The marker file, one line with the version of the format, identifies a data
// directory of conclave. It carries its first name until the database has been
// created, and its final name from then on. This distinguishes a creation that a crash
// interrupted, from which nothing was acknowledged and which is done again, from
// a database that has lost a file.
const (
	creatingName  = "CONCLAVE.new"
	markerName    = "CONCLAVE"
	markerPrefix  = "conclave data directory, format "
	formatVersion = 1
)

// contents is what a directory contains.
type contents struct {
	established bool     // marked, with a database
	creating    bool     // marked, without a complete database
	unfinished  bool     // being filled
	rest        []string // all files but markers and lock
}

// readDirectory reads and checks the contents of a directory without changing
// it.
func readDirectory(fsys vfs.FS, path string) (c contents, err error) {
	names, err := fsys.List(path)
	if err != nil {
		return c, fmt.Errorf("data directory: %w", err)
	}
	for _, name := range names {
		switch name {
		case markerName:
			c.established = true
		case creatingName:
			c.creating = true
		case unfinishedName:
			c.unfinished = true
		case lockName:
		default:
			c.rest = append(c.rest, name)
		}
	}
	switch {
	case c.unfinished:
		return c, nil // whatever else there is
	case c.established:
		return c, readMarker(fsys, fsys.PathJoin(path, markerName))
	case len(c.rest) == 0:
		return c, nil // new, or interrupted before the marker was durable
	case c.creating:
		return c, readMarker(fsys, fsys.PathJoin(path, creatingName))
	}
	return c, fmt.Errorf("%w: %s: contains %q and no file %s: set Dir to the member's data directory, or for a new group choose an empty directory; %s",
		ErrForeign, path, c.rest[0], markerName, NewGroupWarning)
}

func readMarker(fsys vfs.FS, path string) error {
	file, err := fsys.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 4096))
	if err != nil {
		return err
	}
	number, ok := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), markerPrefix)
	version, err := strconv.ParseUint(number, 10, 32)
	switch {
	case !ok || err != nil || version == 0:
		return fmt.Errorf("%w: %s: want %q and a version, got %.40q: %s", ErrCorrupt, path, markerPrefix, text, CorruptAdvice)
	case version > formatVersion:
		return fmt.Errorf("%w: %s: format %d, want at most %d: run the version that wrote it", ErrNewer, path, version, formatVersion)
	}
	return nil
}

// prepare marks a directory without a database, and removes the files of an
// interrupted creation.
func (d *directory) prepare(fsys vfs.FS, access Access) error {
	found, err := readFor(fsys, d.path, access) // a second time: now it is locked
	if err != nil {
		return err
	}
	if access == Fill {
		if found, err = d.empty(fsys, found); err != nil {
			return err
		}
	}
	if found.established {
		return nil
	}
	d.fresh = true
	if len(found.rest) > 0 {
		return d.clear(fsys, found.rest)
	}
	return d.mark(fsys, creatingName)
}

// mark creates a marker file, durably.
func (d *directory) mark(fsys vfs.FS, name string) error {
	marker := fsys.PathJoin(d.path, name)
	file, err := fsys.Create(marker, vfs.WriteCategoryUnspecified)
	if err != nil {
		return notWritable(d.path, err)
	}
	_, err = fmt.Fprintf(file, "%s%d\n", markerPrefix, formatVersion)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", marker, err)
	}
	return syncDirectory(fsys, d.path)
}

// clear removes the files of an interrupted creation except the marker, without
// which the remaining files would be those of another program.
func (d *directory) clear(fsys vfs.FS, names []string) error {
	for _, name := range names {
		if err := fsys.Remove(fsys.PathJoin(d.path, name)); err != nil {
			return fmt.Errorf("remove %s of an interrupted creation in %s: %w", name, d.path, err)
		}
	}
	return syncDirectory(fsys, d.path)
}

// establish records that the database is complete.
func (d *directory) establish(fsys vfs.FS) error {
	if err := fsys.Rename(fsys.PathJoin(d.path, creatingName), fsys.PathJoin(d.path, markerName)); err != nil {
		return err
	}
	return syncDirectory(fsys, d.path)
}
