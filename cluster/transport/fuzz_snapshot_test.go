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

// wireTap is a connection from which bytes come, and nothing else.
type wireTap struct {
	net.Conn // nil: nothing else is asked of it
	io.Reader
}

func (w wireTap) Read(b []byte) (int, error)    { return w.Reader.Read(b) }
func (wireTap) SetReadDeadline(time.Time) error { return nil }
func (wireTap) Close() error                    { return nil }

// snapshotTaker reads a snapshot as a member does.
type snapshotTaker struct {
	Handler // nil: nothing else is asked of it
	pairs   []*wire.Pair
	header  *wire.SnapshotHeader
	end     error
}

func (s *snapshotTaker) Snapshot(_ uint64, r *SnapshotReader) error {
	s.header = r.Header()
	s.end = collect(&s.pairs)(0, r)
	return s.end
}

const fuzzChunk = 4 << 10

// FuzzSnapshot feeds its input as what comes behind the hello, as it is and cut
// into the bodies of sound frames at the marks of two length bytes. Whatever it
// is, it is taken for whole only with a header that this version knows, a last
// chunk, and as many pairs as that says; and then all pairs are there.
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
		takeSnapshot(t, in)
		takeSnapshot(t, framed(in))
	})
}

// framed makes frames of the input.
func framed(in []byte) (out []byte) {
	for len(in) > 2 {
		n := min(int(in[0])<<8|int(in[1]), len(in)-2)
		out = appendFrame(out, in[2:2+n])
		in = in[2+n:]
	}
	return out
}

func takeSnapshot(t *testing.T, in []byte) {
	t.Helper()
	taker := &snapshotTaker{}
	tr := &Transport{cfg: Config{Handler: taker, Logger: slog.New(slog.DiscardHandler)}}
	raw := wireTap{Reader: bytes.NewReader(in)}
	r := &SnapshotReader{s: newStream(&conn{Conn: raw, raw: raw, done: make(chan struct{})}, Timing{}, fuzzChunk)}
	err := tr.install(r, 2)
	want, whole := plainly(in)
	if (err == nil) != whole {
		t.Fatalf("%v, and it is whole: %v", err, whole)
	}
	if _, again := r.Next(); r.header != nil && (again == nil || errors.Is(again, io.EOF) != whole) {
		t.Fatalf("first %v, and then %v", err, again)
	}
	if !whole {
		return
	}
	if len(taker.pairs) != len(want) || taker.header.GetVersion() > wire.SnapshotVersion {
		t.Fatalf("%d pairs of %d, header %v", len(taker.pairs), len(want), taker.header)
	}
	for i, p := range want {
		if !proto.Equal(p, taker.pairs[i]) {
			t.Fatalf("pair %d is %v, want %v", i, taker.pairs[i], p)
		}
	}
}

// plainly reads a snapshot without regard for memory or time.
func plainly(in []byte) (pairs []*wire.Pair, whole bool) {
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
