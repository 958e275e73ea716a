package storage

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The marker makes a directory a data directory of conclave: one line with the
// version of the format. It has its first name while the database is being
// created, and its last once that is done: a creation that was cut short, from
// which nothing was ever acknowledged, can be told from a database that has
// lost a file, and is done again.
const (
	creatingName  = "CONCLAVE.new"
	markerName    = "CONCLAVE"
	markerPrefix  = "conclave data directory, format "
	formatVersion = 1
)

// contents is what a directory holds.
type contents struct {
	established bool
	creating    bool     // marked, with the database not complete
	rest        []string // neither marker nor lock
}

// readDirectory looks at a directory without touching it.
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
		case lockName:
		default:
			c.rest = append(c.rest, name)
		}
	}
	switch {
	case c.established:
		return c, readMarker(fsys, fsys.PathJoin(path, markerName))
	case len(c.rest) == 0:
		return c, nil // new, or cut short when not even the marker was whole
	case c.creating:
		return c, readMarker(fsys, fsys.PathJoin(path, creatingName))
	}
	return c, fmt.Errorf("%w: %s holds %q and no %s; choose an empty directory", ErrForeign, path, c.rest[0], markerName)
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
		return fmt.Errorf("%w: %s does not say %q and a number", ErrCorrupt, path, markerPrefix)
	case version > formatVersion:
		return fmt.Errorf("%w: %s says format %d, this one knows up to %d; run the version that wrote it", ErrNewer, path, version, formatVersion)
	}
	return nil
}

// prepare marks a directory without a database, and removes from it what an
// earlier creation left behind.
func (d *directory) prepare(fsys vfs.FS) error {
	found, err := readDirectory(fsys, d.path) // again: now it is locked
	if err != nil || found.established {
		return err
	}
	d.fresh = true
	if len(found.rest) > 0 {
		return d.clear(fsys, found.rest)
	}
	marker := fsys.PathJoin(d.path, creatingName)
	file, err := fsys.Create(marker, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("data directory %s is not writable: %w", d.path, err)
	}
	_, err = fmt.Fprintf(file, "%s%d\n", markerPrefix, formatVersion)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", marker, err)
	}
	return syncDirectory(fsys, d.path)
}

// clear removes what a creation that was cut short has left, but its marker,
// without which the rest would be taken for somebody else's.
func (d *directory) clear(fsys vfs.FS, names []string) error {
	for _, name := range names {
		if err := fsys.Remove(fsys.PathJoin(d.path, name)); err != nil {
			return fmt.Errorf("remove %s of an unfinished creation: %w", name, err)
		}
	}
	return syncDirectory(fsys, d.path)
}

// establish says that the database is complete.
func (d *directory) establish(fsys vfs.FS) error {
	if err := fsys.Rename(fsys.PathJoin(d.path, creatingName), fsys.PathJoin(d.path, markerName)); err != nil {
		return err
	}
	return syncDirectory(fsys, d.path)
}
