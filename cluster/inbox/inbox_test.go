package inbox

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

func submission(rng *rand.Rand, size int) *wire.Submission {
	id := wire.ID{byte(rng.IntN(9))}
	s := &wire.Submission{Incarnation: id[:], Floor: rng.Uint64N(1000)}
	for size > 0 {
		n := rng.IntN(size) + 1
		s.Calls = append(s.Calls, &wire.Call{Seq: rng.Uint64N(1 << 40), Command: make([]byte, n)})
		size -= n
	}
	return s
}

// batch takes the next batch.
func (b *Inbox) batch(t *testing.T) *wire.Batch {
	t.Helper()
	return b.batchUpTo(t, MaxBatchBytes)
}

// batchUpTo is batch with so many bytes of ordinary commands.
func (b *Inbox) batchUpTo(t *testing.T, ordinary int) *wire.Batch {
	t.Helper()
	data, err := b.AppendBatch(nil, wire.BatchVersion, 1, ordinary)
	if err != nil {
		t.Fatal(err)
	}
	batch := new(wire.Batch)
	if err := proto.Unmarshal(data, batch); err != nil {
		t.Fatal(err)
	}
	return batch
}

// The Inbox encodes a batch like protobuf.
func TestInbox_Encoding(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var b Inbox
		want := &wire.Batch{Version: wire.BatchVersion, Time: rng.Int64()}
		for range rng.IntN(5) {
			s := submission(rng, 1+rng.IntN(3000))
			b.Add(1, s)
			want.Submissions = append(want.Submissions, s)
		}
		prefix := []byte("header")
		got, err := b.AppendBatch(prefix, wire.BatchVersion, want.Time, MaxBatchBytes)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, append(prefix, whole...)) {
			t.Fatalf("the inbox encodes %x, protobuf %x", got, whole)
		}
		if !b.Empty() || b.bytes != 0 {
			t.Fatalf("%d bytes are left", b.bytes)
		}
	}
}

// A batch takes as much as fits from the front, and at least one submission.
func TestInbox_BatchesInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var b Inbox
	sizes := []int{MaxBatchBytes / 2, MaxBatchBytes / 3, MaxBatchBytes / 3, 2 * MaxBatchBytes, 10, 20}
	for i, size := range sizes {
		s := submission(rng, size)
		s.Floor = uint64(i)
		b.Add(1, s)
	}
	var got [][]uint64
	for !b.Empty() {
		var floors []uint64
		for _, s := range b.batch(t).GetSubmissions() {
			floors = append(floors, s.GetFloor())
		}
		got = append(got, floors)
		left := 0
		for _, h := range b.shares {
			for _, q := range slices.Concat(h.urgent.all(), h.ordinary.all()) {
				left += q.bytes()
			}
		}
		if b.bytes != left {
			t.Errorf("counts %d bytes of %d that are left", b.bytes, left)
		}
	}
	want := [][]uint64{{0, 1}, {2}, {3}, {4, 5}}
	if len(got) != len(want) {
		t.Fatalf("batches %v, want %v", got, want)
	}
	for i := range want {
		if len(got[i]) != len(want[i]) || got[i][0] != want[i][0] {
			t.Errorf("batches %v, want %v", got, want)
		}
	}
	if b.bytes != 0 {
		t.Errorf("%d bytes are left", b.bytes)
	}
}

// A member sends the same submission again while it waits.
func TestInbox_KeepsCopy(t *testing.T) {
	var b Inbox
	s := submission(rand.New(rand.NewPCG(1, 2)), 3000)
	want := proto.CloneOf(s)
	b.Add(1, s)
	b.Add(1, s)
	if got := b.batch(t).GetSubmissions(); len(got) != 1 || !proto.Equal(got[0], want) {
		t.Errorf("%d submissions", len(got))
	}
}

// What a submission contains beside its fields is neither counted nor encoded, so the
// Inbox does not keep it.
func TestInbox_DropsUnknownFields(t *testing.T) {
	var b Inbox
	s := submission(rand.New(rand.NewPCG(1, 2)), 3000)
	want := proto.CloneOf(s)
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, 1<<16))
	s.ProtoReflect().SetUnknown(unknown)
	for _, c := range s.GetCalls() {
		c.ProtoReflect().SetUnknown(unknown)
	}
	b.Add(1, s)
	if got := b.shares[0].ordinary.front().Submission; !proto.Equal(got, want) {
		t.Errorf("%d bytes are kept, want %d", proto.Size(got), proto.Size(want))
	}
}

// What a member forwards for its clients has a share besides that of the member: a flood of it keeps no renewal from
// the log.
func TestInbox_ClientsHaveShare(t *testing.T) {
	var b Inbox
	b.Add(2, &wire.Submission{Member: 77, Incarnation: make([]byte, 16), Client: true, Calls: []*wire.Call{{Seq: 1, Command: []byte{1}}}})
	b.Add(2, &wire.Submission{Member: 2, Incarnation: append(make([]byte, 15), 1), Calls: []*wire.Call{{Seq: 1, Command: []byte{1}}}})
	if n := len(b.shares); n != 2 {
		t.Errorf("%d shares, want 2", n)
	}
}
