package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// A snapshot travels as a SnapshotHeader and SnapshotChunks, the last of which
// carries the number of pairs. One frame comes back: installed, or why not.
const (
	installed  = "installed"
	chunkSlack = 64 << 10 // what a chunk's encoding may add to its pairs
	maxStatus  = 4 << 10
)

// SnapshotWriter sends one snapshot. It is not for concurrent use.
type SnapshotWriter struct {
	s      *stream
	limit  int
	stop   func() bool
	ctx    context.Context
	chunk  wire.SnapshotChunk
	bytes  int
	total  uint64
	status chan error // the receiver's answer
}

// OpenSnapshot connects to a member in the address book and sends the header.
// ctx bounds the whole transfer.
func (t *Transport) OpenSnapshot(ctx context.Context, to uint64, header *wire.SnapshotHeader) (*SnapshotWriter, error) {
	p := t.peer(to)
	if p == nil {
		return nil, ErrUnknownPeer
	}
	p.mu.Lock()
	addr := p.addr
	p.mu.Unlock()
	c, err := t.connect(ctx, addr, wire.Kind_SNAPSHOT, to)
	if err != nil {
		return nil, err
	}
	w := &SnapshotWriter{
		s: newStream(c, t.cfg.Timing, t.cfg.Limits.Chunk+chunkSlack), limit: t.cfg.Limits.Chunk, ctx: ctx,
		stop: context.AfterFunc(ctx, func() { _ = c.Close() }), status: make(chan error, 1),
	}
	// The answer is awaited from the start: the receiver may refuse half-way.
	if !t.goroutines.start("snapshot status", func() { w.status <- w.awaitStatus() }) {
		w.Close()
		return nil, ErrClosed
	}
	t.beats(w.s)
	if err := w.send(header); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Add appends a pair, of which it keeps a copy.
func (w *SnapshotWriter) Add(key, value []byte) error {
	n := len(key) + len(value)
	if n > w.limit {
		return fmt.Errorf("%w: a pair of %d bytes, the limit is %d", ErrTooLarge, n, w.limit)
	}
	// 32 bytes is more than the encoding adds to one pair.
	if w.bytes+n+32 > w.limit && len(w.chunk.Pairs) > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.chunk.Pairs = append(w.chunk.Pairs, &wire.Pair{Key: append([]byte(nil), key...), Value: append([]byte(nil), value...)})
	w.bytes += n + 32
	w.total++
	return nil
}

// Commit sends the rest and waits until the receiver has installed the
// snapshot. ErrSnapshotRefused: it has not, and says why.
func (w *SnapshotWriter) Commit() error {
	w.chunk.Last, w.chunk.PairsTotal = true, w.total
	if err := w.flush(); err != nil {
		return err
	}
	err := <-w.status
	w.status <- err // for a send that comes too late
	return err
}

// Close gives up the transfer unless it was committed. Twice is fine.
func (w *SnapshotWriter) Close() {
	w.stop()
	_ = w.s.Close() // the receiver notices that the last chunk is missing
}

func (w *SnapshotWriter) flush() error {
	err := w.send(&w.chunk)
	w.chunk, w.bytes = wire.SnapshotChunk{}, 0
	return err
}

func (w *SnapshotWriter) send(m proto.Message) error {
	buf, err := appendMessage(nil, m)
	if err != nil {
		return err
	}
	if len(buf)-frameHeader > w.s.limit {
		return fmt.Errorf("%w: a snapshot message of %d bytes, the limit is %d", ErrTooLarge, len(buf)-frameHeader, w.s.limit)
	}
	if err = w.s.write(buf); err == nil {
		return nil
	}
	_ = w.s.Close()
	status := <-w.status // the connection is closed, so it comes; and it says more
	w.status <- status
	return status
}

// awaitStatus returns what the receiver says in the end.
func (w *SnapshotWriter) awaitStatus() error {
	body, err := w.s.read()
	_ = w.s.Close()
	switch {
	case err != nil:
		return fmt.Errorf("transport: snapshot: %w", errors.Join(err, context.Cause(w.ctx)))
	case string(body) != installed:
		return fmt.Errorf("%w: %s", ErrSnapshotRefused, body)
	}
	return nil
}

// SnapshotReader reads one snapshot.
type SnapshotReader struct {
	s      *stream
	header *wire.SnapshotHeader
	total  uint64
	end    error // what Next returns from now on
}

// Header says what the snapshot is.
func (r *SnapshotReader) Header() *wire.SnapshotHeader { return r.header }

// Next returns the next pairs, in the order in which they were added. io.EOF
// means that the snapshot is complete; any other error that it is of no use.
func (r *SnapshotReader) Next() ([]*wire.Pair, error) {
	for r.end == nil {
		var chunk wire.SnapshotChunk
		if r.end = r.receive(&chunk); r.end != nil {
			break
		}
		r.total += uint64(len(chunk.GetPairs()))
		if chunk.GetLast() {
			r.end = io.EOF
			if chunk.GetPairsTotal() != r.total {
				r.end = fmt.Errorf("%w: the snapshot should have %d pairs, %d arrived", ErrBadFrame, chunk.GetPairsTotal(), r.total)
				break
			}
		}
		if len(chunk.GetPairs()) > 0 {
			return chunk.GetPairs(), nil
		}
	}
	return nil, r.end
}

func (r *SnapshotReader) receive(m proto.Message) error {
	body, err := r.s.read()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF // the end of the connection is not the end of the snapshot
	}
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(body, m); err != nil {
		return fmt.Errorf("%w: %w", ErrBadFrame, err)
	}
	return nil
}

// serveSnapshot hands a snapshot to the Handler and reports its verdict.
func (t *Transport) serveSnapshot(c *conn, h *hello) {
	s := newStream(c, t.cfg.Timing, t.cfg.Limits.Chunk+chunkSlack)
	t.beats(s)
	err := t.install(&SnapshotReader{s: s}, h.Member)
	status := installed
	if err != nil {
		t.log().Warn("a snapshot was not installed", "peer", fmt.Sprintf("%x", h.Member), "err", err)
		status = "not installed: " + err.Error()
	}
	if s.write(appendFrame(nil, []byte(status[:min(len(status), maxStatus)]))) != nil {
		return // the sender tries again without an answer
	}
	// The sender closes when it has read the verdict. Closing first, with its
	// chunks unread, could reset the connection and lose the verdict.
	late := time.AfterFunc(t.cfg.Timing.Silence, func() { _ = s.Close() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, s.r)
}

func (t *Transport) install(r *SnapshotReader, from uint64) error {
	header := new(wire.SnapshotHeader)
	if err := r.receive(header); err != nil {
		return err
	}
	if v := header.GetVersion(); v > wire.SnapshotVersion {
		return fmt.Errorf("transport: a snapshot of version %d, this member reads up to %d: upgrade it", v, wire.SnapshotVersion)
	}
	r.header = header
	if err := t.cfg.Handler.Snapshot(from, r); err != nil {
		return err
	}
	if !errors.Is(r.end, io.EOF) {
		return fmt.Errorf("%w: the snapshot was not read to its end", ErrBadFrame)
	}
	return nil
}
