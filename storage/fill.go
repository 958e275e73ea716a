package storage

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Filling a directory: a database whose first content must be complete before a member
// starts on it. A file marks the directory from before the first change until Finish. A
// crash in between leaves the mark, and no member starts there as if the directory were
// new; the next Fill begins again.

const unfinishedName = "CONCLAVE.unfinished"

// CheckVacant returns an error unless Fill would accept the directory, which may be
// missing. It changes nothing.
func CheckVacant(options Options) error {
	options = options.withDefaults()
	info, err := options.FS.Stat(options.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("data directory: %w", err)
	case !info.IsDir():
		return fmt.Errorf("%w: %s is a file", ErrNotEmpty, options.Dir)
	}
	_, err = readFor(options.FS, options.Dir, Fill)
	return err
}

// readFor is readDirectory for an access, which must fit the contents.
func readFor(fsys vfs.FS, path string, access Access) (contents, error) {
	c, err := readDirectory(fsys, path)
	vacant := !c.established && !c.creating && len(c.rest) == 0
	switch {
	case access == Fill && !c.unfinished && !vacant:
		return c, fmt.Errorf("%w: %s: choose another one, or move its content away", ErrNotEmpty, path)
	case access != OpenOrCreate && access != Fill && errors.Is(err, ErrForeign) && !c.established && !c.creating: // nothing is to begin there
		return c, fmt.Errorf("%w: %s: contains %q and no file %s: name the data directory of a member", ErrForeign, path, c.rest[0], markerName)
	case err != nil || access == Fill:
		return c, err
	case c.unfinished:
		return c, fmt.Errorf("%w: %s: a Restore into it was interrupted: run it again, to its end", ErrUnfinished, path)
	case !c.established && access != OpenOrCreate:
		return c, fmt.Errorf("%w: %s: no member has started in it", ErrForeign, path)
	}
	return c, nil
}

// empty marks the directory as unfinished, and removes what an earlier Fill has left.
func (d *directory) empty(fsys vfs.FS, found contents) (contents, error) {
	if !found.unfinished {
		if err := d.mark(fsys, unfinishedName); err != nil {
			return found, err
		}
	}
	for name, exists := range map[string]bool{markerName: found.established, creatingName: found.creating} {
		if exists {
			found.rest = append(found.rest, name)
		}
	}
	return contents{unfinished: true}, d.clear(fsys, found.rest)
}

// Finish makes a directory that is being filled an ordinary one. All that was written
// before must be durable.
func (s *Store) Finish() error {
	return s.Do(func(*pebble.DB) error {
		if err := s.fs.Remove(s.fs.PathJoin(s.dir.path, unfinishedName)); err != nil {
			return err
		}
		return syncDirectory(s.fs, s.dir.path)
	})
}
