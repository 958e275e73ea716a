package raftlog

import (
	"bytes"
	"cmp"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/storage"
	"google.golang.org/protobuf/proto"
)

// FuzzRecord replaces one record of a valid log by arbitrary bytes. Open refuses
// the log as corrupt or newer, or raft starts from it and it accepts appends.
func FuzzRecord(f *testing.F) {
	g := group(0)
	keys := [][]byte{
		g.key(kindHardState), g.key(kindConfState), g.key(kindApplied), g.key(kindTruncated), g.key(kindSynced),
		g.key(kindGeneration), g.entry(3), g.entry(5), g.entry(6), g.entry(7), g.local("identity"), g.state(0, []byte("k")),
	}
	records := validRecords(f)
	for which, key := range keys {
		f.Add(byte(which), records[string(key)])
		f.Add(byte(which), []byte{})
	}
	f.Add(byte(0), []byte{recordVersion + 1})
	f.Add(byte(6), encodeEntry(entry(3, 9, "other"), 7))
	f.Add(byte(7), []byte{recordVersion, 0})
	f.Add(byte(2), encodeNumbers(5, 1, 0))
	f.Add(byte(3), encodeNumbers(1<<64-1, 1, 0))
	f.Add(byte(4), encodeNumbers(1<<64-1))
	f.Add(byte(5), encodeNumbers(1<<64-1))
	f.Fuzz(func(t *testing.T, which byte, record []byte) {
		store, err := storage.Open(storage.Options{Inline: true, MemTableSize: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if err := writeValidLog(store); err != nil {
			t.Fatal(err)
		}
		key := keys[int(which)%len(keys)]
		if err := store.Do(func(db *pebble.DB) error { return db.Set(key, record, pebble.Sync) }); err != nil {
			t.Fatal(err)
		}
		log, err := Open(store)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		if proto.Equal(log.conf, voters(1)) { // of any other membership, core.New refuses what raft cannot start from
			startRaft(t, log)
		}
		if _, err := readLog(log); err != nil {
			t.Fatal(err)
		}
		_, _ = log.Local("identity")
		last := log.written.last()
		if last.index < 1<<62 {
			checkWritable(t, log, last)
		}
	})
}

// checkWritable appends one entry to a log.
func checkWritable(t *testing.T, log *Log, last position) {
	t.Helper()
	term := max(last.term, log.written.hard.GetTerm())
	vote := cmp.Or(log.written.hard.GetVote(), 1) // a second vote in a term is refused
	if err := log.Write([]Op{Append{Entries: entries(last.index+1, last.index+1, term), HardState: hardState(term, vote, log.written.hard.GetCommit())}}); err != nil {
		t.Fatal(err)
	}
}

// writeValidLog writes a log with a record of each kind.
func writeValidLog(store *storage.Store) error {
	log, err := Open(store)
	if err != nil {
		return err
	}
	return errors.Join(
		log.Bootstrap(voters(1)),
		log.Write([]Op{Append{HardState: hardState(2, 1, 5), Entries: entries(2, 6, 2)}}),
		log.Write([]Op{Checkpoint{After: 1, Index: 4, Term: 2, Digest: 3, Changes: largeChanges("v", 1)}}),
		log.Write([]Op{Truncate{Index: 2}}),
		log.SetLocal("identity", []byte("member")),
	)
}

func validRecords(f *testing.F) map[string][]byte {
	store, err := storage.Open(storage.Options{Inline: true})
	if err != nil {
		f.Fatal(err)
	}
	defer store.Close()
	if err := writeValidLog(store); err != nil {
		f.Fatal(err)
	}
	records := map[string][]byte{}
	db, unpin, err := store.Pin()
	if err != nil {
		f.Fatal(err)
	}
	defer unpin()
	if err := each(db, nil, func(key, value []byte) error {
		records[string(key)] = bytes.Clone(value)
		return nil
	}); err != nil {
		f.Fatal(err)
	}
	return records
}
