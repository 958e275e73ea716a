package wire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// What is encoded without reflection has the bytes that package proto makes.
func TestEncode_AsProto(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	for range 10_000 {
		c := randomCommand(rng)
		want, failed := proto.Marshal(c)
		got, err := EncodeCommand(c)
		if (err != nil) != (failed != nil) || !bytes.Equal(got, want) {
			t.Fatalf("%v\nas %x, %v\nwant %x, %v", c, got, err, want, failed)
		}
		if n := CommandSize(c); n != proto.Size(c) || err == nil && n != len(got) {
			t.Fatalf("%v: size %d, want %d", c, n, proto.Size(c))
		}
		s := randomSubmission(rng)
		batch := must(proto.Marshal(&Batch{Submissions: []*Submission{s}}))
		if got := AppendSubmission(nil, s, SubmissionSize(s)); !bytes.Equal(got, batch) {
			t.Fatalf("%v\nas %x\nwant %x", s, got, batch)
		}
	}
}

// What is decoded is what package proto decodes, also when the memory of earlier ones is used
// again; and the decoder keeps nothing of it.
func TestDecoder_AsProto(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 0))
	d := new(Decoder)
	for range 10_000 {
		b := &Batch{Version: rng.Uint32N(3), Time: int64(randomNumber(rng))}
		for range rng.IntN(4) {
			b.Submissions = append(b.Submissions, randomSubmission(rng))
		}
		checkBatch(t, d, must(proto.Marshal(b)))
		if data, err := proto.Marshal(randomCommand(rng)); err == nil {
			checkCommand(t, d, data)
		}
		d.Release()
		checkReleased(t, d)
	}
}

func checkReleased(t *testing.T, d *Decoder) {
	t.Helper()
	kept := d.lock.Lock.GetSession() != nil || d.lock.Lock.GetLabel() != nil || d.unlock.Unlock.GetSession() != nil || d.unlock.Unlock.GetTrace() != nil
	for _, c := range d.calls {
		kept = kept || c.Command != nil
	}
	for _, s := range d.submissions {
		kept = kept || s.Incarnation != nil || s.Calls != nil
	}
	if kept {
		t.Fatal("the decoder keeps a part of its data")
	}
}

// The memory that the decoder keeps for the next batch is bounded.
func TestDecoder_LargeBatch(t *testing.T) {
	s := &Submission{Incarnation: make([]byte, 16)}
	for i := range uint64(maxKeptCalls) {
		s.Calls = append(s.Calls, &Call{Seq: i + 1})
	}
	d := new(Decoder)
	checkBatch(t, d, must(proto.Marshal(&Batch{Version: 1, Submissions: []*Submission{s}})))
	if d.calls != nil || d.submissions != nil {
		t.Errorf("it keeps %d calls and %d submissions", len(d.calls), len(d.submissions))
	}
}

// What is not in the plain form is left to package proto.
func TestDecoder_OddCommands(t *testing.T) {
	d := new(Decoder)
	for _, data := range oddCommands() {
		checkCommand(t, d, data)
		checkBatch(t, d, data)
	}
}

func oddCommands() [][]byte {
	lock := must(proto.Marshal(&Command{Op: &Command_Lock{Lock: &Lock{Name: "x"}}}))
	handle := must(proto.Marshal(&Command{Op: &Command_Lock{Lock: &Lock{Handle: 7}}}))
	var invalid Writer
	(&Command{Op: &Command_Lock{Lock: &Lock{Name: "not \xff UTF-8"}}}).fields(&invalid)
	return [][]byte{
		append(bytes.Clone(lock), handle...), // merged into one
		protowire.AppendVarint(protowire.AppendTag(bytes.Clone(lock), 99, protowire.VarintType), 1),
		protowire.AppendTag(nil, 3, protowire.StartGroupType),
		invalid.Buf,
		lock[:len(lock)-1],
	}
}

// FuzzDecoder: any bytes are decoded as package proto decodes them, or refused with it.
func FuzzDecoder(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 0))
	for range 20 {
		f.Add(must(proto.Marshal(&Batch{Version: 1, Time: 5, Submissions: []*Submission{randomSubmission(rng)}})))
		if data, err := proto.Marshal(randomCommand(rng)); err == nil {
			f.Add(data)
		}
	}
	for _, data := range oddCommands() {
		f.Add(data)
	}
	d := new(Decoder)
	f.Fuzz(func(t *testing.T, data []byte) {
		checkBatch(t, d, data)
		checkCommand(t, d, data)
	})
}

func checkBatch(t *testing.T, d *Decoder, data []byte) {
	t.Helper()
	want := new(Batch)
	failed := proto.Unmarshal(data, want)
	got, err := d.Batch(data)
	if (err != nil) != (failed != nil) || err == nil && !proto.Equal(got, want) {
		t.Fatalf("%x\nas %v, %v\nwant %v, %v", data, got, err, want, failed)
	}
	d.Release()
}

func checkCommand(t *testing.T, d *Decoder, data []byte) {
	t.Helper()
	want := new(Command)
	failed := proto.Unmarshal(data, want)
	if got, err := d.Command(data); (err != nil) != (failed != nil) || err == nil && !proto.Equal(got, want) {
		t.Fatalf("%x\nas %v, %v\nwant %v, %v", data, got, err, want, failed)
	}
}

func randomCommand(rng *rand.Rand) *Command {
	name := []string{"", "orders", strings.Repeat("ü", 100), "not \xff UTF-8"}[rng.IntN(4)]
	session := make([]byte, []int{0, 16, 200}[rng.IntN(3)])
	bit := func() bool { return rng.IntN(2) == 0 }
	switch rng.IntN(3) {
	case 0:
		return &Command{Op: &Command_Renew{Renew: new(Renew)}}
	case 1:
		return &Command{Op: &Command_Unlock{Unlock: &Unlock{
			Name: name, Session: session, Handle: randomNumber(rng), Fence: randomNumber(rng), Election: bit(),
			Trace: make([]byte, []int{0, 55, 200}[rng.IntN(3)]), Share: randomNumber(rng),
		}}}
	}
	l := &Lock{
		Name: name, Session: session, Handle: randomNumber(rng), Reentrant: bit(), Limit: uint32(randomNumber(rng)),
		Wait: bit(), Fence: randomNumber(rng), Lingering: bit(),
	}
	if rng.IntN(4) == 0 {
		l.Label = [][]byte{[]byte("a label"), []byte("not \xff UTF-8")}[rng.IntN(2)]
	}
	if rng.IntN(4) == 0 {
		l.Election, l.Value = bit(), make([]byte, rng.IntN(200))
	}
	if rng.IntN(4) == 0 {
		l.Shared, l.Share = bit(), randomNumber(rng)
	}
	return &Command{Op: &Command_Lock{Lock: l}}
}

func randomSubmission(rng *rand.Rand) *Submission {
	s := &Submission{
		Incarnation: make([]byte, 16), Floor: randomNumber(rng), Member: randomNumber(rng),
		Urgent: rng.IntN(2) == 0, Applied: randomNumber(rng), Client: rng.IntN(4) == 0,
	}
	for range rng.IntN(5) {
		s.Calls = append(s.Calls, &Call{Seq: randomNumber(rng), Command: make([]byte, rng.IntN(200))})
	}
	return s
}

func randomNumber(rng *rand.Rand) uint64 {
	return []uint64{0, 1, 127, 128, math.MaxUint32, math.MaxUint64, rng.Uint64()}[rng.IntN(7)]
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
