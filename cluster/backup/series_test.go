package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// headers returns those of a default group and of further groups with these numbers.
func headers(further ...uint32) []*wire.BackupHeader {
	list := []*wire.BackupHeader{{Group: "default", Cluster: make([]byte, 16), Member: 1, Index: 7, Term: 2, Series: true}}
	for _, n := range further {
		list = append(list, &wire.BackupHeader{
			Group: "default", Cluster: make([]byte, 16), Member: 1, Index: 7, Term: 2, Further: n, Name: fmt.Sprint("group", n, "/"),
		})
	}
	return list
}

// writtenSeries returns the documents of a backup of several groups, and its trailer. The one of the default group has 5 pairs.
func writtenSeries(t testing.TB, list ...*wire.BackupHeader) (documents [][]byte) {
	t.Helper()
	s := NewSeries()
	for i, h := range list {
		documents = append(documents, writtenDocument(t, s, h, 5-i))
	}
	var b bytes.Buffer
	if err := s.End(&b); err != nil {
		t.Fatal(err)
	}
	return append(documents, b.Bytes())
}

func TestSeries_WhatWasWrittenIsRead(t *testing.T) {
	for _, list := range [][]*wire.BackupHeader{headers(), headers(1), headers(2, 3, 9)} {
		b := bytes.Join(writtenSeries(t, list...), nil)
		pairs, err := readBackup(iotest.OneByteReader(bytes.NewReader(b)))
		want := 0
		for i := range list {
			want += 5 - i
		}
		if err != nil || len(pairs) != want {
			t.Errorf("%d documents: %d pairs, want %d: %v", len(list), len(pairs), want, err)
		}
	}
	alone := writtenDocument(t, NewSeries(), headers(3)[1], 4)
	if pairs, err := readBackup(bytes.NewReader(alone)); err != nil || len(pairs) != 4 {
		t.Errorf("a further group alone: %v, %v", pairs, err)
	}
}

// Builds that know no further groups read the backup of a default group alone, and refuse every other one.
func TestSeries_Version(t *testing.T) {
	version := func(b []byte) byte { return b[len(backupMagic)+3] }
	if v := version(writtenBackup(t, 1)); v != 1 {
		t.Errorf("version %d of the default group alone", v)
	}
	for _, b := range [][]byte{writtenSeries(t, headers()...)[0], writtenDocument(t, NewSeries(), headers(3)[1], 1)} {
		if v := version(b); v != 2 {
			t.Errorf("version %d of a backup with further groups", v)
		}
	}
}

// Each flipped bit and each truncation is detected, also one between two documents and one before the trailer.
func TestSeries_DamageDetected(t *testing.T) {
	whole := bytes.Join(writtenSeries(t, headers(1, 2)...), nil)
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
}

// Whole documents in an order, a number or a combination that no member writes are refused.
func TestSeries_DocumentsRefused(t *testing.T) {
	d, other := writtenSeries(t, headers(1, 2)...), writtenSeries(t, headers(1, 2, 3)...)
	late := headers(1, 2)
	late[2].Index++
	later := writtenSeries(t, late...)
	if len(d) != 4 { // default, two further ones, trailer
		t.Fatalf("%d documents", len(d))
	}
	for name, bad := range map[string][][]byte{
		"a document is missing":       {d[0], d[1], d[3]},
		"a document is doubled":       {d[0], d[1], d[1], d[2], d[3]},
		"the default one is doubled":  {d[0], d[0], d[1], d[2], d[3]},
		"two documents swapped":       {d[0], d[2], d[1], d[3]},
		"the default one is missing":  {d[1], d[2], d[3]},
		"the default one is last":     {d[1], d[2], d[0], d[3]},
		"one of another backup":       {d[0], d[1], later[2], d[3]},
		"one more":                    {d[0], d[1], d[2], other[3], d[3]},
		"the trailer of another one":  {d[0], d[1], d[2], other[4]},
		"no trailer":                  {d[0], d[1], d[2]},
		"two trailers":                {d[0], d[1], d[2], d[3], d[3]},
		"a trailer and nothing else":  {d[3]},
		"a document behind the end":   {d[0], d[1], d[2], d[3], other[3]},
		"a byte behind the end":       {d[0], d[1], d[2], d[3], {0}},
		"several, and the first only": {d[0]},
		"a group alone, and a second": {d[1], d[2]},
		"a trailer behind one alone":  {d[1], d[3]},
		"the default one twice":       {writtenBackup(t, 1), writtenBackup(t, 1)},
	} {
		if _, err := readBackup(bytes.NewReader(bytes.Join(bad, nil))); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if c, err := Copy(io.Discard, bytes.NewReader(bytes.Join(bad, nil))); !errors.Is(err, storage.ErrCorrupt) || c.Whole || c.Confirmed {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// Headers that contradict themselves or one another are refused, whatever their checksums.
func TestSeries_HeadersRefused(t *testing.T) {
	for name, change := range map[string]func(h []*wire.BackupHeader){
		"a further one begins a series": func(h []*wire.BackupHeader) { h[1].Series = true },
		"a number without a name":       func(h []*wire.BackupHeader) { h[1].Name = "" },
		"a name without a number":       func(h []*wire.BackupHeader) { h[0].Name = "x" },
		"of another cluster":            func(h []*wire.BackupHeader) { h[2].Cluster = bytes.Repeat([]byte{1}, 16) },
		"of a cluster of another name":  func(h []*wire.BackupHeader) { h[2].Group = "other" },
		"one number twice":              func(h []*wire.BackupHeader) { h[2].Further = h[1].Further },
		"descending numbers":            func(h []*wire.BackupHeader) { h[1].Further = 9 },
		"a default group behind":        func(h []*wire.BackupHeader) { h[2].Further, h[2].Name = 0, "" },
		"no series":                     func(h []*wire.BackupHeader) { h[0].Series = false },
	} {
		list := headers(1, 2)
		change(list)
		if _, err := readBackup(bytes.NewReader(bytes.Join(writtenSeries(t, list...), nil))); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A header of one version behind the prelude of the other one is refused: an old build would take the first document for all.
func TestSeries_VersionOfHeader(t *testing.T) {
	old, series := writtenBackup(t, 1), writtenSeries(t, headers()...)[0]
	for name, bad := range map[string][]byte{
		"old": append(bytes.Clone(old[:backupPrelude]), series[backupPrelude:]...),
		"new": append(bytes.Clone(series[:backupPrelude]), old[backupPrelude:]...),
	} {
		if _, err := Open(bytes.NewReader(bad)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A copy is whole only with its trailer, wherever the connection is lost, and confirmed only if each document is.
func TestCopySeries(t *testing.T) {
	list := headers(1, 2)
	lost := errors.New("the connection was lost")
	for _, confirmed := range []int{0, 1, 2, 3} {
		for i, h := range list {
			h.Confirmed = i < confirmed
		}
		whole := bytes.Join(writtenSeries(t, list...), nil)
		for n := range len(whole) {
			var b bytes.Buffer
			c, err := Copy(&b, io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(lost)))
			if !errors.Is(err, lost) || c.Whole || c.Confirmed || !bytes.Equal(b.Bytes(), whole[:n]) {
				t.Fatalf("%d bytes of %d: %+v, %v, %d bytes written", n, len(whole), c, err, b.Len())
			}
		}
		var b bytes.Buffer
		c, err := Copy(&b, iotest.OneByteReader(bytes.NewReader(whole)))
		if err != nil || !c.Whole || c.Confirmed != (confirmed == 3) || !bytes.Equal(b.Bytes(), whole) {
			t.Errorf("%d confirmed: %+v, %v", confirmed, c, err)
		}
		if c, err := Copy(io.Discard, io.MultiReader(bytes.NewReader(whole), iotest.ErrReader(lost))); !errors.Is(err, lost) || !c.Whole {
			t.Errorf("lost behind the end: %+v, %v", c, err)
		}
	}
}

// Next refuses to skip the rest of a document.
func TestReader_NextBeforeTheEnd(t *testing.T) {
	r, err := Open(bytes.NewReader(bytes.Join(writtenSeries(t, headers(1)...), nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Next(); err == nil || err == io.EOF || !proto.Equal(r.Header, headers()[0]) {
		t.Error(err)
	}
}
