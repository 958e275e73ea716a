// Package backup is the format of backups: the state of one group, or of several, as a stream that is checked when it is read.
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

// A backup has a document for each group whose state it has: a prelude, which every version has, and records.
//
//	prelude   magic, version (4 bytes), CRC-32C of both
//	record    kind (1 byte), length (4), body, CRC-32C of kind, length and body
//
// The records are a BackupHeader, any number of BackupChunks with the pairs of the state
// in key order, and a BackupEnd, behind which nothing follows. Its checksum covers all
// before it, so a record that is missing, repeated or of another backup is detected as
// well. Numbers are big-endian.
//
// Behind the document of the default group, if its header says so, are those of further groups, in the order of their numbers, and
// a record with the BackupTrailer: see Series.
const (
	backupMagic   = "conclave backup\n"
	backupPrelude = len(backupMagic) + 4 + 4

	headerRecord = 'h'
	chunkRecord  = 'c'
	endRecord    = 'e'
	trailer      = 't' // no prelude begins with it

	recordPrefix = 1 + 4
	maxRecord    = 8 << 20 // bytes of a body: several times what a page and a pair can have
	maxEnds      = 1 << 20 // of the first and the last one
)

func crc(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Writer writes the records of a document.
type Writer struct {
	to       io.Writer
	sum      hash.Hash
	pairs    uint64
	buf      []byte
	checksum []byte // of the document, once it is whole
}

// versionOf returns the version of a document: that of the first builds, if they can restore it.
func versionOf(h *wire.BackupHeader) uint32 {
	if h.GetSeries() || h.GetFurther() != 0 {
		return wire.BackupVersion
	}
	return wire.BackupBase
}

// NewWriter writes the beginning of a document.
func NewWriter(to io.Writer, h *wire.BackupHeader) (*Writer, error) {
	w := &Writer{to: to, sum: sha256.New()}
	w.buf = binary.BigEndian.AppendUint32([]byte(backupMagic), versionOf(h))
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

// End writes the end of a document, without which it is not whole.
func (w *Writer) End() error {
	w.checksum = w.sum.Sum(nil)
	return w.record(endRecord, &wire.BackupEnd{Pairs: w.pairs, Checksum: w.checksum})
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

// Reader reads a backup, one document after another, and checks it on the way.
type Reader struct {
	from   io.Reader
	Header *wire.BackupHeader // of the present document
	first  *wire.BackupHeader
	series *Series // of the documents that are read
	whole  bool    // the end of the backup was read, and matches

	// Of the present document.
	sum      hash.Hash
	pairs    uint64
	lastKey  []byte
	checksum []byte // nil: its end was not read yet
}

// Damaged returns an error that wraps storage.ErrCorrupt.
func Damaged(format string, args ...any) error {
	return fmt.Errorf("%w: backup: "+format, append([]any{storage.ErrCorrupt}, args...)...)
}

// Open reads the beginning of a backup.
func Open(from io.Reader) (*Reader, error) {
	r := &Reader{from: from, series: NewSeries()}
	if err := r.begin(nil); err != nil {
		return nil, err
	}
	return r, nil
}

// begin reads the beginning of a document, of which the first bytes are read.
func (r *Reader) begin(read []byte) error {
	prelude := append(make([]byte, 0, backupPrelude), read...)[:backupPrelude]
	n, err := io.ReadFull(r.from, prelude[len(read):])
	n = min(len(read)+n, len(backupMagic))
	if !bytes.Equal(prelude[:n], []byte(backupMagic)[:n]) {
		return Damaged("it does not begin as a backup does: is it the right file?")
	}
	if err != nil {
		return truncated(err)
	}
	covered := prelude[:backupPrelude-4]
	if binary.BigEndian.Uint32(prelude[len(covered):]) != crc(covered) {
		return Damaged("its first bytes do not match their checksum")
	}
	version := binary.BigEndian.Uint32(prelude[len(backupMagic):])
	switch {
	case version > wire.BackupVersion:
		return fmt.Errorf("%w: backup of version %d, want at most %d", storage.ErrNewer, version, wire.BackupVersion)
	case version == 0:
		return Damaged("version 0")
	}
	r.sum, r.pairs, r.lastKey, r.checksum = sha256.New(), 0, nil, nil
	r.sum.Write(prelude)
	kind, body, err := r.record(nil)
	if err != nil {
		return err
	}
	if kind != headerRecord {
		return Damaged("no header, but a record of kind %q", kind)
	}
	r.sum.Write(body)
	h := new(wire.BackupHeader)
	if err := r.decode(body, h); err != nil {
		return err
	}
	return r.take(version, h)
}

// truncated turns the end of the input into damage, and leaves other errors as they are.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Damaged("it is truncated")
	}
	return fmt.Errorf("read the backup: %w", err)
}

// record reads a record whole, of which the prefix is read or nothing, and returns its kind with all of its bytes.
func (r *Reader) record(prefix []byte) (kind byte, record []byte, err error) {
	if prefix == nil {
		prefix = make([]byte, recordPrefix)
		if _, err := io.ReadFull(r.from, prefix); err != nil {
			return 0, nil, truncated(err)
		}
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

// next returns the pairs of the next chunk, or io.EOF behind the end record of a document
// that is whole. It allocates the record and nothing for each pair.
func (r *Reader) next() (wire.Pairs, error) {
	if r.checksum != nil {
		return nil, io.EOF
	}
	kind, record, err := r.record(nil)
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

// finish checks the end record, and returns io.EOF if the document is whole.
func (r *Reader) finish(record []byte) error {
	end := new(wire.BackupEnd)
	if err := r.decode(record, end); err != nil {
		return err
	}
	checksum := r.sum.Sum(nil)
	if end.GetPairs() != r.pairs || !bytes.Equal(end.GetChecksum(), checksum) {
		return Damaged("it does not match its checksum, with %d pairs of %d", r.pairs, end.GetPairs())
	}
	r.checksum = checksum
	r.series.add(checksum)
	return io.EOF
}

// All iterates over the pairs of the document. If it ends early, or the document is not whole, failed is
// set. more is asked before each chunk. Whether the backup is whole Next reports.
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
