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
	watermarkSlot   = 512 // a sector, which the disk writes atomically
	watermarkRecord = 1 + 8 + 4
	watermarkEvery  = 64 // raises between two syncs
)

// watermark stores the number of synced writes in a small file outside the
// database. A database that has lost the tail of its WAL opens without an error;
// but each synced write also puts its number into the database, so that a number
// below the watermark shows the loss of acknowledged entries.
//
// It is raised after the write is durable, never before, and so never exceeds
// the true number. It need not be durable itself: it survives a crash of the
// process, and if a power loss sets it back it merely detects less. It is
// therefore synced on every 64th raise, and after a write whose loss no other
// member would notice: a term, a vote, a local record.
//
// Of its two slots one always holds what was synced last, and only the other is
// written to, so that a torn write leaves one valid slot.
type watermark struct {
	file     vfs.File
	count    uint64 // as written
	slot     int64  // to write to
	unsynced int    // raises since the last sync
}

// readWatermark reads the file, if there is one; found is false when no slot is valid.
func readWatermark(fsys vfs.FS, path string) (w *watermark, found bool, err error) {
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
	return w, found, nil
}

// openWatermark opens and reads the file; found is false when no slot is valid.
func openWatermark(fsys vfs.FS, path string) (w *watermark, found bool, err error) {
	if w, found, err = readWatermark(fsys, path); err != nil {
		return nil, false, err
	}
	if w.file, err = fsys.OpenReadWrite(path, vfs.WriteCategoryUnspecified); err != nil {
		return nil, false, err
	}
	if !found {
		return w, false, nil
	}
	// The larger count may not be durable, and the next raise overwrites the other.
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

// decodeSlot decodes a slot; ok is false for one that was never written, or
// torn.
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
	if err := w.raise(0, true); err != nil {
		return err
	}
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// raise sets the count after the write with that number was synced.
func (w *watermark) raise(count uint64, sync bool) error {
	record := encodeNumbers(count)
	record = binary.BigEndian.AppendUint32(record, crc32.Checksum(record, castagnoli))
	if _, err := w.file.WriteAt(record, w.slot*watermarkSlot); err != nil {
		return err
	}
	w.count = count
	w.unsynced++
	if sync || w.unsynced >= watermarkEvery {
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

// verify compares the number of synced writes in the database with the
// watermark.
func (w *watermark) verify(synced uint64) error {
	if synced >= w.count {
		return nil
	}
	return corruptf("lost acknowledged entries: %d writes were acknowledged, %d are in the database, so this member must not vote", w.count, synced)
}
