package raftlog

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/storage"
)

// An entry that is sound in itself and not the one that was written shows by the
// checksums, which run through the whole log.
func TestAnEntryOfAnotherLogIsNoticed(t *testing.T) {
	options := storage.Options{Dir: t.TempDir()}
	store, log := openLog(t, options)
	if err := log.Bootstrap(members(1)); err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Append{HardState: hardState(1, 1, 1), Entries: entries(2, 5, 1)})
	genuine, _ := log.disk.at(3)
	if err := store.Do(func(db *pebble.DB) error {
		return db.Set(log.group.entry(3), encodeEntry(entry(3, 1, "another"), genuine.chain), pebble.Sync)
	}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store, err := storage.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := Open(store, 0); !errors.Is(err, storage.ErrCorrupt) {
		t.Fatalf("opened: %v", err)
	}
}
