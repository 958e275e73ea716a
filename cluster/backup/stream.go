// Package backup is the format of backups: a state of the group as a stream that is checked when it is read.
//
// It is a seam, not an API: only packages cluster and conclave use it.
package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// The format of a backup: a prelude, which every version has, and records.
//
//	prelude   magic, version (4 bytes), CRC-32C of both
//	record    kind (1 byte), length (4), body, CRC-32C of kind, length and body
//
// The records are a BackupHeader, any number of BackupChunks with the pairs of the state
// in key order, and a BackupEnd, behind which nothing follows. Its checksum covers all
// before it, so a record that is missing, repeated or of another backup is detected as
// well. Numbers are big-endian.
const (
	backupMagic   = "conclave backup\n"
	backupPrelude = len(backupMagic) + 4 + 4

	headerRecord = 'h'
	chunkRecord  = 'c'
	endRecord    = 'e'

	recordPrefix = 1 + 4
	maxRecord    = 8 << 20 // bytes of a body: several times what a page and a pair can have
	maxEnds      = 1 << 20 // of the first and the last one
)

func crc(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Writer writes the records of a backup.
type Writer struct {
	to    io.Writer
	sum   hash.Hash
	pairs uint64
	buf   []byte
}

// NewWriter writes the beginning of a backup.
func NewWriter(to io.Writer, h *wire.BackupHeader) (*Writer, error) {
	w := &Writer{to: to, sum: sha256.New()}
	w.buf = binary.BigEndian.AppendUint32([]byte(backupMagic), wire.BackupVersion)
	w.buf = binary.BigEndian.AppendUint32(w.buf, crc(w.buf))
	if err := w.flush(); err != nil {
		return nil, err
	}
	return w, w.record(headerRecord, h)
}

// Add writes pairs, in key order.
func (w *Writer) Add(pairs []wire.Change) error {
	c := &wire.BackupChunk{Pairs: make([]*wire.Pair, len(pairs))}
	for i, p := range pairs {
		c.Pairs[i] = &wire.Pair{Key: p.Key, Value: p.Value}
	}
	w.pairs += uint64(len(pairs))
	return w.record(chunkRecord, c)
}

// End writes the end of a backup, without which it is not whole.
func (w *Writer) End() error {
	return w.record(endRecord, &wire.BackupEnd{Pairs: w.pairs, Checksum: w.sum.Sum(nil)})
}

func (w *Writer) record(kind byte, m proto.Message) (err error) {
	w.buf = append(w.buf[:0], kind, 0, 0, 0, 0)
	if w.buf, err = (proto.MarshalOptions{}).MarshalAppend(w.buf, m); err != nil {
		return err
	}
	size := len(w.buf) - recordPrefix
	if size > maxRecord {
		return fmt.Errorf("backup: a record of %d bytes, want at most %d", size, maxRecord)
	}
	binary.BigEndian.PutUint32(w.buf[1:], uint32(size))
	w.buf = binary.BigEndian.AppendUint32(w.buf, crc(w.buf))
	return w.flush()
}

func (w *Writer) flush() error {
	w.sum.Write(w.buf) // never fails
	n, err := w.to.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return nil
}

// Reader reads a backup and checks it on the way.
type Reader struct {
	from    io.Reader
	sum     hash.Hash
	pairs   uint64
	lastKey []byte
	Header  *wire.BackupHeader // what it is a backup of
	whole   bool               // the end record was read, and matches
}

// Damaged returns an error that wraps storage.ErrCorrupt.
func Damaged(format string, args ...any) error {
	return fmt.Errorf("%w: backup: "+format, append([]any{storage.ErrCorrupt}, args...)...)
}

// Open reads the beginning of a backup.
func Open(from io.Reader) (*Reader, error) {
	r := &Reader{from: from, sum: sha256.New(), Header: new(wire.BackupHeader)}
	prelude := make([]byte, backupPrelude)
	n, err := io.ReadFull(from, prelude)
	if !bytes.Equal(prelude[:min(n, len(backupMagic))], []byte(backupMagic)[:min(n, len(backupMagic))]) {
		return nil, Damaged("it does not begin as a backup does: is it the right file?")
	}
	if err != nil {
		return nil, truncated(err)
	}
	covered := prelude[:backupPrelude-4]
	if binary.BigEndian.Uint32(prelude[len(covered):]) != crc(covered) {
		return nil, Damaged("its first bytes do not match their checksum")
	}
	switch version := binary.BigEndian.Uint32(prelude[len(backupMagic):]); {
	case version > wire.BackupVersion:
		return nil, fmt.Errorf("%w: backup of version %d, want at most %d", storage.ErrNewer, version, wire.BackupVersion)
	case version == 0:
		return nil, Damaged("version 0")
	}
	r.sum.Write(prelude)
	kind, body, err := r.record()
	if err != nil {
		return nil, err
	}
	if kind != headerRecord {
		return nil, Damaged("no header, but a record of kind %q", kind)
	}
	r.sum.Write(body)
	return r, r.decode(body, r.Header)
}

// truncated turns the end of the input into damage, and leaves other errors as they are.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Damaged("it is truncated")
	}
	return fmt.Errorf("read the backup: %w", err)
}

// record reads a record whole, and returns its kind with all of its bytes.
func (r *Reader) record() (kind byte, record []byte, err error) {
	prefix := make([]byte, recordPrefix)
	if _, err := io.ReadFull(r.from, prefix); err != nil {
		return 0, nil, truncated(err)
	}
	size, most := binary.BigEndian.Uint32(prefix[1:]), uint32(maxRecord)
	if prefix[0] != chunkRecord {
		most = maxEnds
	}
	if size > most {
		return 0, nil, Damaged("a record of %d bytes, want at most %d", size, most)
	}
	record = append(make([]byte, 0, recordPrefix+size+4), prefix...)[:recordPrefix+size+4]
	if _, err := io.ReadFull(r.from, record[recordPrefix:]); err != nil {
		return 0, nil, truncated(err)
	}
	covered := record[:recordPrefix+size]
	if binary.BigEndian.Uint32(record[len(covered):]) != crc(covered) {
		return 0, nil, Damaged("a record does not match its checksum")
	}
	return prefix[0], record, nil
}

func (r *Reader) decode(record []byte, m proto.Message) error {
	if err := proto.Unmarshal(record[recordPrefix:len(record)-4], m); err != nil {
		return Damaged("a malformed record: %v", err)
	}
	return nil
}

// next returns the pairs of the next chunk, or io.EOF behind the end record of a backup
// that is whole. It allocates the record and nothing for each pair.
func (r *Reader) next() (wire.Pairs, error) {
	kind, record, err := r.record()
	switch {
	case err != nil:
		return nil, err
	case kind == endRecord:
		return nil, r.finish(record)
	case kind != chunkRecord:
		return nil, Damaged("a record of kind %q", kind)
	}
	r.sum.Write(record)
	chunk, err := wire.DecodeChunk(record[recordPrefix : len(record)-4])
	if err != nil {
		return nil, Damaged("a malformed record: %v", err)
	}
	for key := range chunk.Pairs.All() {
		if r.pairs > 0 && bytes.Compare(key, r.lastKey) <= 0 {
			return nil, Damaged("key %q follows key %q", key, r.lastKey)
		}
		r.pairs++
		r.lastKey = key
	}
	return chunk.Pairs, nil
}

// finish checks the end record, and returns io.EOF if the backup is whole.
func (r *Reader) finish(record []byte) error {
	end := new(wire.BackupEnd)
	if err := r.decode(record, end); err != nil {
		return err
	}
	if end.GetPairs() != r.pairs || !bytes.Equal(end.GetChecksum(), r.sum.Sum(nil)) {
		return Damaged("it does not match its checksum, with %d pairs of %d", r.pairs, end.GetPairs())
	}
	r.whole = true
	switch n, err := io.ReadFull(r.from, make([]byte, 1)); {
	case n > 0:
		r.whole = false
		return Damaged("something follows its end")
	case err != io.EOF:
		return truncated(err)
	}
	return io.EOF
}

// All iterates over the pairs. If it ends early, or the backup is not whole, failed is
// set. more is asked before each chunk.
func (r *Reader) All(more func() error, failed *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for {
			err := more()
			var pairs wire.Pairs
			if err == nil {
				pairs, err = r.next()
			}
			if err != nil {
				if err != io.EOF {
					*failed = err
				}
				return
			}
			for key, value := range pairs.All() {
				if !yield(key, value) {
					*failed = errors.New("the rest of the backup was not read")
					return
				}
			}
		}
	}
}
