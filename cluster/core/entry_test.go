package core

import (
	"bytes"
	"errors"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

func TestEntry_Header(t *testing.T) {
	data := append(appendEntryHeader(nil, 7, 0xABCDEF), "batch"...)
	got, err := parseEntry(data)
	if err != nil || got.digestIndex != 7 || got.digest != 0xABCDEF || !bytes.Equal(got.batch, []byte("batch")) {
		t.Errorf("%+v, %v", got, err)
	}
	newer := append([]byte{entryVersion + 1}, data[1:]...)
	for name, data := range map[string][]byte{
		"nothing": {}, "a newer version": newer, "half a header": data[:9], "a header alone": data[:entryHeader],
	} {
		if _, err := parseEntry(data); !errors.Is(err, errEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func change(key, value string) wire.Change {
	if value == "" {
		return wire.Change{Key: []byte(key)}
	}
	return wire.Change{Key: []byte(key), Value: []byte(value)}
}

// Every difference between two histories shows in the digest, and goes on showing.
func TestDigest_DiffersWithHistory(t *testing.T) {
	type step struct {
		index   uint64
		changes []wire.Change
	}
	ordinary := []step{{2, []wire.Change{change("a", "1"), change("b", "2")}}, {3, nil}, {4, []wire.Change{change("a", "")}}}
	seen := make(map[uint64]string)
	for name, history := range map[string][]step{
		"ordinary":      ordinary,
		"another value": {{2, []wire.Change{change("a", "1"), change("b", "3")}}, ordinary[1], ordinary[2]},
		"another key":   {{2, []wire.Change{change("a", "1"), change("c", "2")}}, ordinary[1], ordinary[2]},
		"another order": {{2, []wire.Change{change("b", "2"), change("a", "1")}}, ordinary[1], ordinary[2]},
		"a byte moved":  {{2, []wire.Change{change("a1", ""), change("b", "2")}}, ordinary[1], ordinary[2]},
		// Between them are the lengths of b and 2.
		"the second in the first's key":   {{2, []wire.Change{change("a1\x00\x00\x00\x01\x00\x00\x00\x01b", "2")}}, ordinary[1], ordinary[2]},
		"the second in the first's value": {{2, []wire.Change{change("a", "1\x00\x00\x00\x01\x00\x00\x00\x01b2")}}, ordinary[1], ordinary[2]},
		"an entry moved":                  {ordinary[0], {5, nil}, ordinary[2]},
		"an entry missing":                {ordinary[0], ordinary[2]},
		"changes of another entry":        {{2, nil}, {3, ordinary[0].changes}, ordinary[2]},
	} {
		var d digests
		d.restore(1, 0)
		for _, s := range history {
			d.add(s.index, s.changes)
		}
		if other, ok := seen[d.last]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[d.last] = name
	}
}

// Members of different builds compare their digests, so the values never change.
func TestDigest_Stable(t *testing.T) {
	var d digests
	d.restore(1, 0)
	d.add(2, []wire.Change{change("a", "1"), change("b", "")})
	d.add(3, nil)
	if want := uint64(0xea0142f32a70bad1); d.last != want {
		t.Errorf("the digest of this history has become %#x, was %#x", d.last, want)
	}
}

func TestDigest_Agrees(t *testing.T) {
	var d digests
	d.restore(10, 99)
	for index := uint64(11); index < 200; index++ {
		d.add(index, nil)
	}
	if !d.agrees(199, d.last) || d.agrees(199, d.last+1) {
		t.Error("the last index")
	}
	if !d.agrees(11, 12345) {
		t.Error("an index long forgotten cannot disagree")
	}
	d.restore(500, 7)
	if !d.agrees(500, 7) || d.agrees(500, 8) || !d.agrees(499, 1) || !d.agrees(199, 1) {
		t.Error("after a snapshot only its own index is known")
	}
}
