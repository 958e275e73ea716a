package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	watermarkSlot   = 512 // a sector each, which is written whole or not at all
	watermarkRecord = 1 + 8 + 4
	watermarkEvery  = 64 // rises between two syncs
)

// watermark keeps, in a small file outside the database, how many synced writes
// there have been. A database that has lost the end of its write-ahead log
// opens without a word; but each synced write also puts its number into the
// database, so there a smaller one means that the member has forgotten what it
// acknowledged.
//
// It rises after the write is durable, never before, so it never claims too
// much. It need not be durable at once: after a crash of the process alone it
// is there, and when it is behind after a power cut it merely detects less. So
// it is synced every 64th time, and when the write was a promise to others that
// nothing else would remind of: a term, a vote, a local record.
//
// Of the two slots one always holds what was synced last, and only the other
// is written to, so that a torn write leaves one that is whole.
type watermark struct {
	file     vfs.File
	count    uint64 // as written
	slot     int64  // to write to
	unsynced int
}

// openWatermark opens the file and reads it; found is false when it holds
// nothing.
func openWatermark(fsys vfs.FS, path string) (w *watermark, found bool, err error) {
	slots, err := readSlots(fsys, path)
	if err != nil {
		return nil, false, err
	}
	w = new(watermark)
	for i, slot := range slots {
		count, ok, err := decodeSlot(slot)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", path, err)
		}
		if ok && (!found || count > w.count) {
			w.count, w.slot, found = count, int64(1-i), true
		}
	}
	if w.file, err = fsys.OpenReadWrite(path, vfs.WriteCategoryUnspecified); err != nil {
		return nil, false, err
	}
	if !found {
		return w, false, nil
	}
	// The larger may not be durable yet, and the next write is to the other.
	return w, true, w.file.Sync()
}

func readSlots(fsys vfs.FS, path string) (slots [2][]byte, err error) {
	file, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return slots, nil
	}
	if err != nil {
		return slots, err
	}
	defer file.Close()
	for i := range slots {
		slots[i] = make([]byte, watermarkRecord)
		if _, err := file.ReadAt(slots[i], int64(i)*watermarkSlot); err != nil && err != io.EOF {
			return slots, err
		}
	}
	return slots, nil
}

// decodeSlot reads a slot; ok is false for one that was never, or not wholly,
// written.
func decodeSlot(slot []byte) (count uint64, ok bool, err error) {
	if len(slot) != watermarkRecord {
		return 0, false, nil
	}
	record := slot[:watermarkRecord-4]
	if binary.BigEndian.Uint32(slot[len(record):]) != crc32.Checksum(record, castagnoli) {
		return 0, false, nil
	}
	err = decodeNumbers("watermark", record, &count)
	return count, err == nil, err
}

// create writes the first count and makes the file itself durable.
func (w *watermark) create(fsys vfs.FS, dir string) error {
	if err := w.rise(0, true); err != nil {
		return err
	}
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// rise is called after the write with that number was synced.
func (w *watermark) rise(count uint64, durably bool) error {
	record := encodeNumbers(count)
	record = binary.BigEndian.AppendUint32(record, crc32.Checksum(record, castagnoli))
	if _, err := w.file.WriteAt(record, w.slot*watermarkSlot); err != nil {
		return err
	}
	w.count = count
	w.unsynced++
	if durably || w.unsynced >= watermarkEvery {
		return w.sync()
	}
	return nil
}

func (w *watermark) sync() error {
	if err := w.file.Sync(); err != nil {
		return err
	}
	w.slot, w.unsynced = 1-w.slot, 0
	return nil
}

// close makes the last count durable.
func (w *watermark) close() error {
	if w.unsynced > 0 {
		if err := w.sync(); err != nil {
			return errors.Join(err, w.file.Close())
		}
	}
	return w.file.Close()
}

// verify compares the number of the last synced write that the database shows
// with the watermark.
func (w *watermark) verify(shown uint64) error {
	if shown >= w.count {
		return nil
	}
	return damaged("this member has acknowledged %d writes and remembers only %d of them, so its log is shorter than others believe; it must not vote: "+
		"move the directory away and let it join as a new member", w.count, shown)
}
