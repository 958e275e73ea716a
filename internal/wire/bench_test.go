package wire

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
)

const benchCalls = 64

func benchSubmission() *Submission {
	s := &Submission{Incarnation: make([]byte, 16), Floor: 1 << 20, Member: 1 << 60}
	for i := range uint64(benchCalls) {
		lock := &Lock{Name: fmt.Sprint("orders/", i), Session: make([]byte, 16), Handle: i, Wait: true}
		s.Calls = append(s.Calls, &Call{Seq: 1<<20 + i, Command: must(EncodeCommand(&Command{Op: &Command_Lock{Lock: lock}}))})
	}
	return s
}

// An entry of 64 locks is decoded.
func BenchmarkDecode(b *testing.B) {
	data := must(proto.Marshal(&Batch{Version: 1, Time: 1 << 60, Submissions: []*Submission{benchSubmission()}}))
	d := new(Decoder)
	b.ReportAllocs()
	for b.Loop() {
		batch, err := d.Batch(data)
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range batch.Submissions[0].Calls {
			if _, err := d.Command(c.Command); err != nil {
				b.Fatal(err)
			}
		}
		d.Release()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchCalls, "ns/command")
}

// A lock is encoded, and its size taken before, as by a caller.
func BenchmarkEncodeCommand(b *testing.B) {
	c := &Command{Op: &Command_Lock{Lock: &Lock{Name: "orders/1", Session: make([]byte, 16), Handle: 7, Wait: true}}}
	b.ReportAllocs()
	for b.Loop() {
		if data, err := EncodeCommand(c); err != nil || len(data) != CommandSize(c) {
			b.Fatal(data, err)
		}
	}
}

// A submission of 64 commands is encoded, as by the leader.
func BenchmarkAppendSubmission(b *testing.B) {
	s := benchSubmission()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendSubmission(buf[:0], s, SubmissionSize(s))
	}
}
