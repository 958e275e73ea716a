package backup

import (
	"errors"
	"fmt"
	"io"
)

// Copied is what [Copy] has written.
type Copied struct {
	Begun     bool // something was written, or may have been
	Whole     bool // all of the backup was written
	Confirmed bool // with Whole: of each group a quorum has confirmed its state
}

// Copy writes a backup that another process sends, and checks on the way that it is
// whole: how the connection ends does not tell. The error is that of the writer, of the reader,
// which may follow a backup that is whole, or storage.ErrCorrupt. A backup of a later version
// cannot be checked: storage.ErrNewer.
func Copy(to io.Writer, from io.Reader) (c Copied, err error) {
	t := &tee{from: from, to: to}
	r, err := Open(t)
	c.Confirmed = true
	for err == nil {
		if _, err = r.next(); err == io.EOF {
			c.Confirmed = c.Confirmed && r.Header.GetConfirmed()
			err = r.Next()
		}
	}
	c.Begun, c.Whole = t.begun, r != nil && r.whole && t.failed == nil
	c.Confirmed = c.Confirmed && c.Whole
	switch {
	case t.failed != nil:
		return c, fmt.Errorf("write the backup: %w", t.failed)
	case errors.Is(err, io.EOF):
		return c, nil
	}
	return c, err
}

// tee writes what is read. Unlike that of package io it fails at a short write.
type tee struct {
	from   io.Reader
	to     io.Writer
	begun  bool
	failed error // of to: whatever it wraps, such as io.EOF, the reader has not ended
}

// Read implements io.Reader.
func (t *tee) Read(b []byte) (int, error) {
	n, err := t.from.Read(b)
	if n == 0 {
		return n, err
	}
	t.begun = true
	written, failed := t.to.Write(b[:n])
	if failed == nil && written < n {
		failed = io.ErrShortWrite
	}
	if failed != nil {
		t.failed = failed
		return 0, failed
	}
	return n, err
}
