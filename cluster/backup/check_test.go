package backup

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// However a backup is truncated, it is not taken for a whole one, and all that came is passed on.
func TestCopyBackup_Truncated(t *testing.T) {
	backup := writtenBackup(t, 10)
	lost := errors.New("the connection was lost")
	for n := range len(backup) {
		var b bytes.Buffer
		c, err := Copy(&b, io.MultiReader(bytes.NewReader(backup[:n]), iotest.ErrReader(lost)))
		if !errors.Is(err, lost) || c.Whole || c.Begun != (n > 0) || !bytes.Equal(b.Bytes(), backup[:n]) {
			t.Fatalf("%d bytes of %d: %+v, %v, %d bytes written", n, len(backup), c, err, b.Len())
		}
		if c, err = Copy(io.Discard, bytes.NewReader(backup[:n])); !errors.Is(err, storage.ErrCorrupt) || c.Whole {
			t.Fatalf("%d bytes of %d, ended as if they were all: %+v, %v", n, len(backup), c, err)
		}
	}
}

func TestCopyBackup_Whole(t *testing.T) {
	backup := writtenBackup(t, 10)
	var b bytes.Buffer
	if c, err := Copy(&b, iotest.OneByteReader(bytes.NewReader(backup))); err != nil || !c.Whole || !bytes.Equal(b.Bytes(), backup) {
		t.Errorf("%+v, %v", c, err)
	}
	lost := errors.New("the connection was lost")
	if c, err := Copy(io.Discard, io.MultiReader(bytes.NewReader(backup), iotest.ErrReader(lost))); !errors.Is(err, lost) || !c.Whole {
		t.Errorf("lost behind the end: %+v, %v", c, err)
	}
	if c, err := Copy(io.Discard, bytes.NewReader(append(backup, 0))); !errors.Is(err, storage.ErrCorrupt) || c.Whole {
		t.Errorf("something behind the end: %+v, %v", c, err)
	}
	var confirmed bytes.Buffer
	w, err := NewWriter(&confirmed, &wire.BackupHeader{Confirmed: true})
	if err == nil {
		err = w.End()
	}
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Copy(io.Discard, &confirmed); err != nil || !c.Confirmed {
		t.Errorf("confirmed: %+v, %v", c, err)
	}
}

// A writer that takes less than it got, without an error, has not got a whole backup.
func TestCopyBackup_ShortWrite(t *testing.T) {
	backup := writtenBackup(t, 1)
	w := iotest.TruncateWriter(io.Discard, int64(len(backup))) // takes all
	if c, err := Copy(w, bytes.NewReader(backup)); err != nil || !c.Whole {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := Copy(short{}, bytes.NewReader(backup)); !errors.Is(err, io.ErrShortWrite) || c.Whole {
		t.Errorf("%+v, %v", c, err)
	}
}

type short struct{}

func (short) Write(b []byte) (int, error) { return len(b) - 1, nil }
