//go:build unix

package sqltest

import (
	"errors"
	"testing"
)

// A statement outside of a transaction begins one that no statement ends: it keeps the snapshot of its first
// read, and its writes are lost with the connection.
func (b *database) autocommitOff(t *testing.T) {
	off := *b
	off.db = b.open(t, "?autocommit=0")
	off.db.SetMaxOpenConns(1)
	guard := off.Guard(off.db)
	if err := errors.Join(b.write(t.Context(), "autocommit", 1), guard.Check("autocommit", 1)); err != nil {
		t.Fatal(err)
	}
	if err := b.write(t.Context(), "autocommit", 2); err != nil { // another process
		t.Fatal(err)
	}
	refused(t, guard.Check("autocommit", 1), 1, 2)

	off.db.SetMaxIdleConns(-1)
	if err := errors.Join(off.write(t.Context(), "autocommit, first use", 1), guard.Check("autocommit, first check", 1)); err != nil {
		t.Error(err)
	}
}
