package wire_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// What DecodeChunk accepts, and what it finds, is what package proto does.
func FuzzDecodeChunk(f *testing.F) {
	for _, m := range []*wire.SnapshotChunk{
		{}, {Last: true, PairsTotal: 7},
		{Pairs: []*wire.Pair{{}, {Key: []byte("k")}, {Key: []byte("l"), Value: []byte("v")}}},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(bytes.Repeat([]byte{1<<3 | 2, 0}, 100))
	f.Add([]byte{1 << 3, 7})                              // pairs of another type
	f.Add([]byte{1<<3 | 2, 2, 1 << 3, 9, 4<<3 | 2, 1, 0}) // a key of another type, an unknown field
	f.Add([]byte{1<<3 | 2, 4, 1<<3 | 2, 0, 1<<3 | 2, 0})  // a key twice
	f.Add([]byte{1<<3 | 3, 1<<3 | 4, 2<<3 | 2, 0})
	f.Add([]byte("\xe0\xe0\xdc\xc9)\x03")) // no valid number of a field
	f.Fuzz(func(t *testing.T, data []byte) {
		want := new(wire.SnapshotChunk)
		wantErr := proto.Unmarshal(data, want)
		got, err := wire.DecodeChunk(data)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%v; proto: %v", err, wantErr)
		}
		if err != nil {
			return
		}
		if got.Last != want.Last || got.Total != want.PairsTotal || got.Count != uint64(len(want.Pairs)) || wire.Occurrences(data, 1) < len(want.Pairs) {
			t.Fatalf("%+v, want %v", got, want)
		}
		i := 0
		for key, value := range got.Pairs.All() {
			if !bytes.Equal(key, want.Pairs[i].Key) || !bytes.Equal(value, want.Pairs[i].Value) {
				t.Fatalf("pair %d: %q = %q, want %v", i, key, value, want.Pairs[i])
			}
			i++
		}
		if i != len(want.Pairs) {
			t.Fatalf("%d pairs, want %d", i, len(want.Pairs))
		}
	})
}

// What reading a chunk takes does not depend on how many pairs it has.
func TestDecodeChunk_AllocatesNothing(t *testing.T) {
	chunk := bytes.Repeat([]byte{1<<3 | 2, 0}, 1<<20)
	pairs := 0
	if n := testing.AllocsPerRun(1, func() {
		c, err := wire.DecodeChunk(chunk)
		if err != nil {
			t.Fatal(err)
		}
		for range c.Pairs.All() {
			pairs++
		}
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
	if pairs != 2<<20 {
		t.Errorf("%d pairs", pairs)
	}
}
