package core

import (
	"bytes"
	"math/rand/v2"
	"testing"

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

// The inbox encodes a batch like protobuf.
func TestInbox_Encoding(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var b inbox
		want := &wire.Batch{Version: wire.BatchVersion, Time: rng.Int64()}
		for range rng.IntN(5) {
			s := submission(rng, 1+rng.IntN(3000))
			b.add(s)
			want.Submissions = append(want.Submissions, s)
		}
		prefix := []byte("header")
		got, err := b.appendBatch(prefix, want.Time)
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
		if !b.empty() || b.bytes != 0 {
			t.Fatalf("%d bytes are left", b.bytes)
		}
	}
}

// A batch takes as much as fits from the front, and at least one submission.
func TestInbox_BatchesInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var b inbox
	sizes := []int{maxBatchBytes / 2, maxBatchBytes / 3, maxBatchBytes / 3, 2 * maxBatchBytes, 10, 20}
	for i, size := range sizes {
		s := submission(rng, size)
		s.Floor = uint64(i)
		b.add(s)
	}
	var got [][]uint64
	for !b.empty() {
		data, err := b.appendBatch(nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		var batch wire.Batch
		if err := proto.Unmarshal(data, &batch); err != nil {
			t.Fatal(err)
		}
		var floors []uint64
		for _, s := range batch.GetSubmissions() {
			floors = append(floors, s.GetFloor())
		}
		got = append(got, floors)
		left := 0
		for _, s := range b.submissions {
			left += proto.Size(s)
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

// Beyond its limit the inbox drops submissions, and takes them again once there is room.
func TestInbox_Limit(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var b inbox
	for range 2 * maxInbox / maxBatchBytes {
		b.add(submission(rng, maxBatchBytes))
	}
	if b.bytes > maxInbox || b.bytes < maxInbox-2*maxBatchBytes {
		t.Fatalf("%d bytes wait, the limit is %d", b.bytes, maxInbox)
	}
	n := len(b.submissions)
	if _, err := b.appendBatch(nil, 1); err != nil {
		t.Fatal(err)
	}
	b.add(submission(rng, 100))
	if len(b.submissions) != n {
		t.Errorf("%d wait, want %d", len(b.submissions), n)
	}
}

// A submission without commands has next to no size and would still take memory.
func TestInbox_EmptySubmissionDropped(t *testing.T) {
	var b inbox
	b.add(new(wire.Submission))
	if !b.empty() {
		t.Error("a submission without commands is kept")
	}
}
