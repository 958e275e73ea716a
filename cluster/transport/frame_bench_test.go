package transport

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// A frame with 1,400 bytes of raft's, as of 24 commands, is written and read.
func BenchmarkFrame(b *testing.B) {
	f := &wire.Frame{Body: &wire.Frame_Raft{Raft: make([]byte, 1400)}}
	var frame, body []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if frame, err = appendMessage(frame[:0], f); err != nil {
			b.Fatal(err)
		}
		if body, err = readFrame(bytes.NewReader(frame), len(frame), body); err != nil {
			b.Fatal(err)
		}
		if err := proto.Unmarshal(body, new(wire.Frame)); err != nil {
			b.Fatal(err)
		}
	}
}
