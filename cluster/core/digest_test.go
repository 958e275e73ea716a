package core

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

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

// Of other indexes than the multiples of the stride, only the last ones are kept; the
// multiples are kept for longer. A snapshot's state has no history.
func TestDigest_Kept(t *testing.T) {
	var d digests
	d.restore(10, 99)
	digestAt := make(map[uint64]uint64)
	for index := uint64(11); index <= 200; index++ {
		d.add(index, nil)
		digestAt[index] = d.last
	}
	for index := uint64(1); index <= 250; index++ {
		want := index > 200-digestsKept && index <= 200 || index > 10 && index <= 200 && index%digestStride == 0
		got := d.kept.at(index)
		if (got != nil) != want || got != nil && got.digest != digestAt[index] {
			t.Errorf("at %d: %v, want it kept: %t", index, got, want)
		}
	}
	d.restore(500, 7)
	if got := d.kept.at(500); got == nil || got.digest != 7 || d.kept.at(128) != nil || d.kept.at(0) != nil {
		t.Error("after a snapshot only its own index is known")
	}
}
