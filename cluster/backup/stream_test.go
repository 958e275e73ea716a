package backup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// writtenBackup returns a backup of n pairs, in chunks of 3.
func writtenBackup(t testing.TB, n int) []byte {
	t.Helper()
	return writtenDocument(t, NewSeries(), &wire.BackupHeader{Group: "group", Cluster: make([]byte, 16), Member: 1, Index: 7, Term: 2}, n)
}

// writtenDocument returns a document of n pairs, in chunks of 3.
func writtenDocument(t testing.TB, s *Series, h *wire.BackupHeader, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	var page []wire.Change
	for i := range n {
		page = append(page, wire.Change{Key: fmt.Appendf(nil, "k%03d", i), Value: fmt.Appendf(nil, "value %d", i)})
		if len(page) == 3 || i == n-1 {
			if err := w.Add(page); err != nil {
				t.Fatal(err)
			}
			page = nil
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	s.Add(w)
	return b.Bytes()
}

// readBackup reads a whole backup. The keys of further groups begin with their names.
func readBackup(from io.Reader) (map[string]string, error) {
	r, err := Open(from)
	pairs := make(map[string]string)
	for err == nil {
		var failed error
		for key, value := range r.All(func() error { return nil }, &failed) {
			pairs[r.Header.GetName()+string(key)] = string(value)
		}
		if err = failed; err == nil {
			err = r.Next()
		}
	}
	if err == io.EOF {
		err = nil
	}
	return pairs, err
}

func TestBackup_WhatWasWrittenIsRead(t *testing.T) {
	for _, n := range []int{0, 1, 3, 10} {
		pairs, err := readBackup(bytes.NewReader(writtenBackup(t, n)))
		if err != nil || len(pairs) != n {
			t.Errorf("%d pairs of %d: %v", len(pairs), n, err)
		}
	}
}

// Each flipped bit, each truncation, and records that are missing, repeated, swapped or of
// another backup are detected.
func TestBackup_DamageDetected(t *testing.T) {
	whole := writtenBackup(t, 7)
	for i := range whole {
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << bit
			if _, err := readBackup(bytes.NewReader(bad)); !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
		if _, err := readBackup(bytes.NewReader(whole[:i])); !errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("truncated to %d bytes: %v", i, err)
		}
	}
	r, other := recordsOf(t, whole), recordsOf(t, writtenBackup(t, 9))
	if len(r) != 6 { // prelude, header, three chunks, end
		t.Fatalf("%d records", len(r))
	}
	for name, bad := range map[string][][]byte{
		"a chunk is missing":    {r[0], r[1], r[2], r[4], r[5]},
		"a chunk is repeated":   {r[0], r[1], r[2], r[2], r[3], r[4], r[5]},
		"two chunks swapped":    {r[0], r[1], r[3], r[2], r[4], r[5]},
		"the last is missing":   {r[0], r[1], r[2], r[3], r[5]},
		"another header":        {r[0], r[2], r[3], r[4], r[5]},
		"two headers":           {r[0], r[1], r[1], r[2], r[3], r[4], r[5]},
		"a chunk of another":    {r[0], r[1], r[2], r[3], other[4], r[5]},
		"the end of another":    {r[0], r[1], r[2], r[3], r[4], other[5]},
		"something behind":      append(r, []byte{0}),
		"another backup behind": append(r, r...),
	} {
		if _, err := readBackup(bytes.NewReader(bytes.Join(bad, nil))); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// recordsOf splits a backup into its prelude and records.
func recordsOf(t *testing.T, b []byte) (records [][]byte) {
	t.Helper()
	records = append(records, b[:backupPrelude])
	for b = b[backupPrelude:]; len(b) > 0; {
		n := recordPrefix + int(binary.BigEndian.Uint32(b[1:])) + 4
		records = append(records, b[:n])
		b = b[n:]
	}
	return records
}

// A length beyond the limit is refused before memory is allocated for it, and errors of
// the reader are not taken for damage.
func TestBackup_BoundsAndReadErrors(t *testing.T) {
	huge := append(bytes.Clone(writtenBackup(t, 1)[:backupPrelude]), headerRecord, 0xff, 0xff, 0xff, 0xff)
	allocated := testing.AllocsPerRun(1, func() {
		if _, err := readBackup(io.MultiReader(bytes.NewReader(huge), zeros{})); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("huge length: %v", err)
		}
	})
	if allocated > 100 {
		t.Errorf("%v allocations", allocated)
	}
	failure := errors.New("failure")
	whole := writtenBackup(t, 5)
	for i := range whole {
		_, err := readBackup(io.MultiReader(bytes.NewReader(whole[:i]), failingReader{failure}))
		if !errors.Is(err, failure) || errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("the reader fails at %d: %v", i, err)
		}
	}
	w, err := NewWriter(io.Discard, &wire.BackupHeader{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add([]wire.Change{{Key: []byte("k"), Value: make([]byte, maxRecord)}}); err == nil {
		t.Error("a record that no reader accepts was written")
	}
	if _, err := NewWriter(shortWriter{}, &wire.BackupHeader{}); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

type shortWriter struct{}

func (shortWriter) Write(p []byte) (int, error) { return len(p) - 1, nil }

// Any bytes are a backup that reads the same when it is written again, or a typed error.
func FuzzBackup(f *testing.F) {
	for _, n := range []int{0, 2, 7} {
		f.Add(writtenBackup(f, n))
	}
	f.Add(bytes.Join(writtenSeries(f, headers(1, 4)...), nil))
	f.Add(writtenDocument(f, NewSeries(), headers(3)[1], 2))
	f.Add([]byte(backupMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		pairs, err := readBackup(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		again, err := readBackup(bytes.NewReader(data))
		if err != nil || !maps.Equal(pairs, again) {
			t.Fatal(err)
		}
	})
}

// One record, as long as it may be, has nothing but empty pairs, or is of another kind than a
// chunk, or lies about its length. What reading it takes is its length.
func TestBackup_RecordTakesItsLength(t *testing.T) {
	const most = 2 * maxRecord
	empty := bytes.Repeat([]byte{1<<3 | 2, 0}, maxRecord/2)
	ascending := []byte{}
	for i := uint32(0); len(ascending) < maxRecord-16; i++ {
		ascending = append(ascending, 1<<3|2, 6, 1<<3|2, 4)
		ascending = binary.BigEndian.AppendUint32(ascending, i)
	}
	for name, c := range map[string]struct {
		kind  byte
		body  []byte
		valid bool
	}{
		"empty pairs":     {chunkRecord, empty, false},
		"ascending pairs": {chunkRecord, ascending, true},
		"end of nothing":  {endRecord, empty, false},
		"unknown kind":    {'x', empty, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := bytes.NewBuffer(writtenBackup(t, 0))
			b.Truncate(len(recordsOf(t, b.Bytes())[0]) + len(recordsOf(t, b.Bytes())[1])) // the header stays
			record := binary.BigEndian.AppendUint32([]byte{c.kind}, uint32(len(c.body)))
			record = append(record, c.body...)
			record = binary.BigEndian.AppendUint32(record, crc(record))
			b.Write(record)
			r, err := Open(b)
			if err != nil {
				t.Fatal(err)
			}
			taken := allocated(func() { _, err = r.next() })
			if (err == nil) != c.valid || err != nil && !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%v", err)
			}
			if taken > most {
				t.Errorf("a record of %d bytes took %d", len(c.body), taken)
			}
		})
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
