package transport

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// readOnlyConn is a connection that can only be read.
type readOnlyConn struct {
	net.Conn // nil: its other methods are not called
	io.Reader
}

func (c readOnlyConn) Read(b []byte) (int, error)    { return c.Reader.Read(b) }
func (readOnlyConn) SetReadDeadline(time.Time) error { return nil }
func (readOnlyConn) Close() error                    { return nil }

// snapshotHandler reads a snapshot as a member does.
type snapshotHandler struct {
	Handler // nil: its other methods are not called
	pairs   []*wire.Pair
	header  *wire.SnapshotHeader
	end     error
}

func (s *snapshotHandler) Snapshot(_ uint64, r *SnapshotReader) error {
	s.header = r.Header()
	s.end = collect(&s.pairs)(0, r)
	return s.end
}

const fuzzChunk = 4 << 10

// FuzzSnapshot uses its input as the bytes that follow the hello: as they are,
// and as bodies of valid frames, each after two length bytes. A snapshot is
// complete exactly if it has a supported header, a last chunk, and as many pairs
// as that chunk states; then every pair arrives.
func FuzzSnapshot(f *testing.F) {
	chunk := func(total uint64, last bool, pairs ...*wire.Pair) proto.Message {
		return &wire.SnapshotChunk{Pairs: pairs, Last: last, PairsTotal: total}
	}
	for _, messages := range [][]proto.Message{
		{testHeader, chunk(0, true)},
		{testHeader, chunk(0, false, pairs(2)...), chunk(5, true, pairs(3)...)},
		{testHeader, chunk(4, true, pairs(3)...)},
		{testHeader, chunk(3, true, pairs(3)...), chunk(3, true, pairs(3)...)},
		{testHeader, chunk(0, false), chunk(0, false), chunk(0, false, pairs(2)...)},
		{&wire.SnapshotHeader{Version: 9}, chunk(0, true)},
	} {
		var raw, bodies []byte
		for _, m := range messages {
			body, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			raw = appendFrame(raw, body)
			bodies = append(append(bodies, byte(len(body)>>8), byte(len(body))), body...)
		}
		f.Add(raw)
		f.Add(bodies)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		checkSnapshot(t, in)
		checkSnapshot(t, framed(in))
	})
}

// framed turns the input into frames.
func framed(in []byte) (out []byte) {
	for len(in) > 2 {
		n := min(int(in[0])<<8|int(in[1]), len(in)-2)
		out = appendFrame(out, in[2:2+n])
		in = in[2+n:]
	}
	return out
}

func checkSnapshot(t *testing.T, in []byte) {
	t.Helper()
	handler := &snapshotHandler{}
	tr := &Transport{cfg: Config{Handler: handler, Logger: slog.New(slog.DiscardHandler)}}
	raw := readOnlyConn{Reader: bytes.NewReader(in)}
	r := &SnapshotReader{s: newStream(&conn{Conn: raw, raw: raw, done: make(chan struct{})}, Timing{}, fuzzChunk)}
	err := tr.install(r, 2)
	want, complete := readPlainly(in)
	if (err == nil) != complete {
		t.Fatalf("got error %v, complete: %v", err, complete)
	}
	if _, again := r.Next(); r.header != nil && (again == nil || errors.Is(again, io.EOF) != complete) {
		t.Fatalf("first error %v, then %v", err, again)
	}
	if !complete {
		return
	}
	if len(handler.pairs) != len(want) || handler.header.GetVersion() > wire.SnapshotVersion {
		t.Fatalf("%d pairs of %d, header %v", len(handler.pairs), len(want), handler.header)
	}
	for i, p := range want {
		if got := handler.pairs[i]; !bytes.Equal(p.Key, got.Key) || !bytes.Equal(p.Value, got.Value) {
			t.Fatalf("pair %d is %v, want %v", i, handler.pairs[i], p)
		}
	}
}

// readPlainly is the model: it reads a snapshot with neither bounds nor timeouts.
func readPlainly(in []byte) (pairs []*wire.Pair, complete bool) {
	r := bytes.NewReader(in)
	next := func(m proto.Message) bool {
		for {
			body, err := readFrame(r, fuzzChunk, nil)
			if err != nil || len(body) > 0 {
				return err == nil && proto.Unmarshal(body, m) == nil
			}
		}
	}
	var header wire.SnapshotHeader
	if !next(&header) || header.GetVersion() > wire.SnapshotVersion {
		return nil, false
	}
	for {
		var chunk wire.SnapshotChunk
		if !next(&chunk) {
			return nil, false
		}
		pairs = append(pairs, chunk.GetPairs()...)
		if chunk.GetLast() {
			return pairs, chunk.GetPairsTotal() == uint64(len(pairs))
		}
	}
}
