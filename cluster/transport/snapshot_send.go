package transport

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// A snapshot is a SnapshotHeader and SnapshotChunks, the last of which carries
// the number of pairs. The receiver answers with one frame: installed, or the
// error.
const (
	installed  = "installed"
	chunkSlack = 64 << 10 // a chunk's encoding may exceed its pairs by this much
	maxStatus  = 4 << 10
)

// SnapshotWriter sends one snapshot. It must not be used concurrently.
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

// OpenSnapshot connects to a peer and sends the header. ctx bounds the whole
// transfer.
func (t *Transport) OpenSnapshot(ctx context.Context, to uint64, header *wire.SnapshotHeader) (*SnapshotWriter, error) {
	p := t.peer(to)
	if p == nil {
		return nil, ErrUnknownPeer
	}
	p.mu.Lock()
	addr := p.addr
	p.mu.Unlock()
	c, err := t.connect(ctx, Target{Addr: addr, Member: to, Advertised: true}, wire.Kind_SNAPSHOT)
	if err != nil {
		return nil, err
	}
	w := &SnapshotWriter{
		s: newStream(c, t.cfg.Timing, t.cfg.Limits.Chunk+chunkSlack), limit: t.cfg.Limits.Chunk, ctx: ctx,
		stop: context.AfterFunc(ctx, func() { _ = c.Close() }), status: make(chan error, 1),
	}
	// The receiver may refuse at any time, so its answer is read from the start.
	if !t.goroutines.start("snapshot status", func() { w.status <- w.awaitStatus() }) {
		w.Close()
		return nil, ErrClosed
	}
	t.goroutines.keepAlive(w.s)
	if err := w.send(header); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Add appends a copy of a pair.
func (w *SnapshotWriter) Add(key, value []byte) error {
	n := len(key) + len(value)
	if n > w.limit {
		return fmt.Errorf("%w: got a pair of %d bytes, want at most %d", ErrTooLarge, n, w.limit)
	}
	// The encoding adds less than 32 bytes to a pair.
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

// Commit sends the rest and blocks until the receiver has installed the
// snapshot. An error that wraps ErrSnapshotRefused contains the receiver's.
func (w *SnapshotWriter) Commit() error {
	w.chunk.Last, w.chunk.PairsTotal = true, w.total
	if err := w.flush(); err != nil {
		return err
	}
	err := <-w.status
	w.status <- err // for later calls
	return err
}

// Close aborts the transfer unless it was committed. Further calls have no
// effect.
func (w *SnapshotWriter) Close() {
	w.stop()
	_ = w.s.Close() // without the last chunk the receiver discards the snapshot
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
		return fmt.Errorf("%w: got a snapshot message of %d bytes, want at most %d", ErrTooLarge, len(buf)-frameHeader, w.s.limit)
	}
	if err = w.s.write(buf); err == nil {
		return nil
	}
	_ = w.s.Close()
	status := <-w.status // prompt, as the connection is closed, and closer to the cause
	w.status <- status
	return status
}

// awaitStatus returns the receiver's answer.
func (w *SnapshotWriter) awaitStatus() error {
	body, err := w.s.read()
	_ = w.s.Close()
	switch {
	case err != nil:
		return fmt.Errorf("transport: snapshot: %w", withCause(w.ctx, err))
	case string(body) != installed:
		return fmt.Errorf("%w: %s", ErrSnapshotRefused, body)
	}
	return nil
}
