package raftlog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/storage"
)

// standing is what a member has promised by its acknowledgements: how far its
// log goes, and for whom it voted.
type standing struct {
	lastTerm, lastIndex uint64
	term, vote          uint64
}

// shorter reports whether a log that ends as s says lacks something that one
// which ends as other says has.
func (s standing) shorter(other standing) bool {
	if c := cmp.Compare(s.lastTerm, other.lastTerm); c != 0 {
		return c < 0
	}
	return s.lastIndex < other.lastIndex
}

// forgot says what of the promise the log does not show, or "".
func (s standing) forgot(promise standing) string {
	switch {
	case s.shorter(promise):
		return fmt.Sprintf("the log ends at entry %d of term %d, and %d of term %d was acknowledged", s.lastIndex, s.lastTerm, promise.lastIndex, promise.lastTerm)
	case s.term < promise.term:
		return fmt.Sprintf("the term is %d, and %d was acknowledged", s.term, promise.term)
	case s.term == promise.term && promise.vote != 0 && s.vote != promise.vote:
		return fmt.Sprintf("the vote of term %d is for %x, and one for %x was acknowledged", s.term, s.vote, promise.vote)
	}
	return ""
}

const (
	watermarkSlot   = 512 // a sector each, which is written whole or not at all
	watermarkRecord = 1 + 5*8 + 4
	watermarkEvery  = 64 // rises between two syncs
)

// watermark keeps the standing in a small file outside the database, because a
// database that has lost the end of its write-ahead log opens without a word.
//
// It never claims more than the write-ahead log holds durably. Rising it
// follows the log, and need not be durable at once: if it is behind after a
// power cut it merely detects less, and after a crash of the process alone it
// is not behind. So only every 64th rise is synced, and those that speak of a
// new term or vote, which are rare and whose loss would be two votes in one
// term. Sinking, when a suffix is replaced by one of an older term or a
// snapshot is installed, it is synced before the log is written.
//
// Of the two slots one always holds what was synced last, and only the other
// is written to, so that a torn write leaves one that is whole.
type watermark struct {
	file     vfs.File
	standing standing // as written
	sequence uint64
	slot     int64 // to write to
	unsynced int
}

// openWatermark opens the file and reads it; found is false when it holds no
// standing.
func openWatermark(fsys vfs.FS, path string) (w *watermark, found bool, err error) {
	slots, err := readSlots(fsys, path)
	if err != nil {
		return nil, false, err
	}
	w = new(watermark)
	for i, slot := range slots {
		standing, sequence, ok, err := decodeSlot(slot)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", path, err)
		}
		if ok && (!found || sequence > w.sequence) {
			// Which of them is durable is not known, so the older one may be
			// the one to lose: the newer is synced below before it is needed.
			w.standing, w.sequence, w.slot, found = standing, sequence, int64(1-i), true
		}
	}
	if w.file, err = fsys.OpenReadWrite(path, vfs.WriteCategoryUnspecified); err != nil {
		return nil, false, err
	}
	if !found {
		return w, false, nil
	}
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

// create writes the first standing and makes the file itself durable.
func (w *watermark) create(fsys vfs.FS, dir string) error {
	if err := w.write(standing{}); err != nil {
		return err
	}
	if err := w.sync(); err != nil {
		return err
	}
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// sink is called before the log is written. It takes back what would not be
// true any more.
func (w *watermark) sink(s standing) error {
	if !s.shorter(w.standing) {
		return nil
	}
	s.term, s.vote = w.standing.term, w.standing.vote // these never sink
	if err := w.write(s); err != nil {
		return err
	}
	return w.sync()
}

// rise is called after the log was synced.
func (w *watermark) rise(s standing) error {
	if s == w.standing {
		return nil
	}
	urgent := s.term != w.standing.term || s.vote != w.standing.vote
	if err := w.write(s); err != nil {
		return err
	}
	if urgent || w.unsynced >= watermarkEvery {
		return w.sync()
	}
	return nil
}

func (w *watermark) write(s standing) error {
	w.sequence++
	record := encodeNumbers(w.sequence, s.lastTerm, s.lastIndex, s.term, s.vote)
	record = binary.BigEndian.AppendUint32(record, crc32.Checksum(record, castagnoli))
	if _, err := w.file.WriteAt(record, w.slot*watermarkSlot); err != nil {
		return err
	}
	w.standing = s
	w.unsynced++
	return nil
}

func (w *watermark) sync() error {
	if err := w.file.Sync(); err != nil {
		return err
	}
	w.slot, w.unsynced = 1-w.slot, 0
	return nil
}

// decodeSlot reads a slot; ok is false for one that was never or not wholly
// written.
func decodeSlot(slot []byte) (s standing, sequence uint64, ok bool, err error) {
	if len(slot) != watermarkRecord {
		return s, 0, false, nil
	}
	record := slot[:watermarkRecord-4]
	if binary.BigEndian.Uint32(slot[len(record):]) != crc32.Checksum(record, castagnoli) {
		return s, 0, false, nil
	}
	err = decodeNumbers("watermark", record, &sequence, &s.lastTerm, &s.lastIndex, &s.term, &s.vote)
	return s, sequence, err == nil, err
}

// verify compares a log as it was found with the watermark.
func (w *watermark) verify(found standing) error {
	if forgot := found.forgot(w.standing); forgot != "" {
		return fmt.Errorf("%w: this member has forgotten what it acknowledged: %s; it must not vote: move the directory away and let it join as a new member", storage.ErrCorrupt, forgot)
	}
	return nil
}

// close makes the last standing durable.
func (w *watermark) close() error {
	if w.unsynced > 0 {
		if err := w.sync(); err != nil {
			return errors.Join(err, w.file.Close())
		}
	}
	return w.file.Close()
}
