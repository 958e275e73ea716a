package raftlog

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/storage"
)

// An entry that is valid by itself, but is not the one that was written,
// contradicts the checksum chain of the whole log.
func TestChecksumChain_ReplacedEntryDetected(t *testing.T) {
	options := storage.Options{Dir: t.TempDir()}
	store, log := openLog(t, options)
	bootstrap(t, log, 1)
	mustWrite(t, log, Append{HardState: hardState(1, 1, 1), Entries: entries(2, 5, 1)})
	genuine, _ := log.written.at(3)
	if err := store.Do(func(db *pebble.DB) error {
		return db.Set(log.group.entry(3), encodeEntry(entry(3, 1, "replaced"), genuine.chain), pebble.Sync)
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
	if _, err := Open(store); !errors.Is(err, storage.ErrCorrupt) {
		t.Fatalf("Open = %v, want ErrCorrupt", err)
	}
}
