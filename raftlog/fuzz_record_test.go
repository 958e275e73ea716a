package raftlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/storage"
	"google.golang.org/protobuf/proto"
)

// FuzzRecord puts any bytes in the place of one record of a sound log. The log
// is refused as damaged or as newer, or it is one that raft starts from and that
// can be written to.
func FuzzRecord(f *testing.F) {
	g := group(0)
	keys := [][]byte{
		g.key(kindHardState), g.key(kindConfState), g.key(kindApplied), g.key(kindTruncated), g.key(kindSynced),
		g.key(kindGeneration), g.entry(3), g.entry(5), g.entry(6), g.entry(7), g.local("identity"), g.state(0, []byte("k")),
	}
	records := soundRecords(f)
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
		if err := soundLog(store); err != nil {
			t.Fatal(err)
		}
		key := keys[int(which)%len(keys)]
		if err := store.Do(func(db *pebble.DB) error { return db.Set(key, record, pebble.Sync) }); err != nil {
			t.Fatal(err)
		}
		log, err := Open(store, 0)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		if proto.Equal(log.conf, members(1)) { // of any other, raft is the judge
			startRaft(t, log)
		}
		if _, err := found(log); err != nil {
			t.Fatal(err)
		}
		_, _ = log.Local("identity")
		last := log.disk.last()
		if last.index < 1<<62 {
			mustWrite(t, log, last)
		}
	})
}

// mustWrite appends one entry to a log that was opened.
func mustWrite(t *testing.T, log *Log, last mark) {
	t.Helper()
	term := max(last.term, log.disk.hard.GetTerm())
	vote := cmp.Or(log.disk.hard.GetVote(), 1) // nobody votes twice in a term
	if err := log.Write([]Op{Append{Entries: entries(last.index+1, last.index+1, term), HardState: hardState(term, vote, log.disk.hard.GetCommit())}}); err != nil {
		t.Fatal(err)
	}
}

// soundLog makes a log with something of each kind.
func soundLog(store *storage.Store) error {
	log, err := Open(store, 0)
	if err != nil {
		return err
	}
	return errors.Join(
		log.Bootstrap(members(1)),
		log.Write([]Op{Append{HardState: hardState(2, 1, 5), Entries: entries(2, 6, 2)}}),
		log.Write([]Op{Apply{Index: 4, Term: 2, Digest: 3, Changes: stagedChanges("v", 1)}}),
		log.Write([]Op{Truncate{Index: 2}}),
		log.SetLocal("identity", []byte("somebody")),
	)
}

func soundRecords(f *testing.F) map[string][]byte {
	store, err := storage.Open(storage.Options{Inline: true})
	if err != nil {
		f.Fatal(err)
	}
	defer store.Close()
	if err := soundLog(store); err != nil {
		f.Fatal(err)
	}
	records := map[string][]byte{}
	db, giveBack, err := store.Borrow()
	if err != nil {
		f.Fatal(err)
	}
	defer giveBack()
	if err := each(db, nil, func(key, value []byte) error {
		records[string(key)] = bytes.Clone(value)
		return nil
	}); err != nil {
		f.Fatal(err)
	}
	return records
}

// FuzzWatermark opens any bytes as a watermark. It is one that was written
// whole, or none, or a newer version's; and what it rises to is found again.
func FuzzWatermark(f *testing.F) {
	two := append(slotOf(recordVersion, 7), make([]byte, watermarkSlot-watermarkRecord)...)
	two = append(two, slotOf(recordVersion, 8)...)
	f.Add(two)
	f.Add(two[:watermarkSlot])
	f.Add(two[watermarkSlot:])
	f.Add(slotOf(recordVersion, 1<<64-1))
	f.Add(slotOf(recordVersion+1, 9))
	f.Add(slotOf(0, 9))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		disk := vfs.NewMem()
		file, err := disk.Create("WATERMARK", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = file.Write(bytes.Clone(content))
		file.Close()
		w, found, err := openWatermark(disk, "WATERMARK")
		if err != nil {
			if !errors.Is(err, storage.ErrNewer) && !errors.Is(err, storage.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		defer w.file.Close()
		if found && !bytes.Contains(content, binary.BigEndian.AppendUint64([]byte{recordVersion}, w.count)) {
			t.Fatalf("found %d, which was never written", w.count)
		}
		if w.count == 1<<64-1 {
			return
		}
		for rise := range uint64(3) {
			count := w.count + 1
			if err := w.rise(count, rise == 1); err != nil {
				t.Fatal(err)
			}
			again, found, err := openWatermark(disk, "WATERMARK")
			if err != nil || !found || again.count != count {
				t.Fatalf("risen to %d, found %+v, %v", count, again, err)
			}
			again.file.Close()
		}
	})
}
