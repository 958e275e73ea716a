package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"

	"github.com/conclave-go/conclave/internal/wire"
)

// Series is the documents of a backup of several groups. Its trailer has their number and a checksum of theirs. So
// documents that are missing, repeated, swapped or of another backup are detected, and so is a truncation between two.
type Series struct {
	documents uint64
	sums      hash.Hash
}

// NewSeries returns a series without a document.
func NewSeries() *Series { return &Series{sums: sha256.New()} }

func (s *Series) add(checksum []byte) {
	s.documents++
	s.sums.Write(checksum)
}

// Add adds a document that is whole.
func (s *Series) Add(w *Writer) { s.add(w.checksum) }

// End writes the trailer, without which a backup of several groups is not whole.
func (s *Series) End(to io.Writer) error {
	w := &Writer{to: to, sum: sha256.New()}
	return w.record(trailer, &wire.BackupTrailer{Documents: s.documents, Checksum: s.sums.Sum(nil)})
}

// take checks a document's header against its version and the documents before it.
func (r *Reader) take(version uint32, h *wire.BackupHeader) error {
	switch {
	case version != versionOf(h):
		return Damaged("version %d with the header of version %d", version, versionOf(h))
	case (h.GetFurther() == 0) != (h.GetName() == ""), h.GetFurther() != 0 && h.GetSeries():
		return Damaged("group %d is called %q", h.GetFurther(), h.GetName())
	case r.first == nil:
		r.first = h
	case h.GetFurther() <= r.Header.GetFurther():
		return Damaged("group %d follows group %d", h.GetFurther(), r.Header.GetFurther())
	case h.GetGroup() != r.first.GetGroup() || !bytes.Equal(h.GetCluster(), r.first.GetCluster()):
		return Damaged("group %d belongs to another cluster", h.GetFurther())
	}
	r.Header = h
	return nil
}

// Next begins the next document, when the present one is read. io.EOF: there is none, and the backup is whole.
func (r *Reader) Next() error {
	if r.checksum == nil {
		return errors.New("the rest of the document was not read")
	}
	if r.first.GetSeries() && !r.whole {
		prefix := make([]byte, recordPrefix)
		if _, err := io.ReadFull(r.from, prefix); err != nil {
			return truncated(err)
		}
		if prefix[0] != trailer {
			return r.begin(prefix)
		}
		if err := r.end(prefix); err != nil {
			return err
		}
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

// end checks the trailer.
func (r *Reader) end(prefix []byte) error {
	_, record, err := r.record(prefix)
	if err != nil {
		return err
	}
	t := new(wire.BackupTrailer)
	if err := r.decode(record, t); err != nil {
		return err
	}
	if t.GetDocuments() != r.series.documents || !bytes.Equal(t.GetChecksum(), r.series.sums.Sum(nil)) {
		return Damaged("it has %d documents, want %d, or they are those of several backups", r.series.documents, t.GetDocuments())
	}
	return nil
}
