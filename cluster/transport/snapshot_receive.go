package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// SnapshotReader reads one snapshot.
type SnapshotReader struct {
	s      *stream
	header *wire.SnapshotHeader
	total  uint64
	end    error // sticky result of Next; io.EOF: complete
}

// Header describes the snapshot.
func (r *SnapshotReader) Header() *wire.SnapshotHeader { return r.header }

// Next returns the next pairs, in the order in which they were added; they may be retained.
// io.EOF means that the snapshot is complete; after any other error it must be
// discarded.
func (r *SnapshotReader) Next() (wire.Pairs, error) {
	for r.end == nil {
		var chunk wire.Chunk
		if chunk, r.end = r.chunk(); r.end != nil {
			break
		}
		r.total += chunk.Count
		if chunk.Last {
			r.end = io.EOF
			if chunk.Total != r.total {
				r.end = fmt.Errorf("%w: incomplete snapshot: want %d pairs, got %d", ErrBadFrame, chunk.Total, r.total)
				break
			}
		}
		if chunk.Count > 0 {
			return chunk.Pairs, nil
		}
	}
	return nil, r.end
}

// chunk receives a chunk. It allocates the chunk and nothing for each pair.
func (r *SnapshotReader) chunk() (wire.Chunk, error) {
	body, err := r.read()
	if err != nil {
		return wire.Chunk{}, err
	}
	chunk, err := wire.DecodeChunk(bytes.Clone(body)) // the next read overwrites it
	if err != nil {
		return wire.Chunk{}, fmt.Errorf("%w: %w", ErrBadFrame, err)
	}
	return chunk, nil
}

func (r *SnapshotReader) read() ([]byte, error) {
	body, err := r.s.read()
	if errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF // only the last chunk ends a snapshot
	}
	return body, err
}

func (r *SnapshotReader) receive(m proto.Message) error {
	body, err := r.read()
	if err != nil {
		return err
	}
	if err := wire.Decode(body, m); err != nil {
		return fmt.Errorf("%w: %w", ErrBadFrame, err)
	}
	return nil
}

// serveSnapshot passes a snapshot to the Handler and answers with the result.
func (t *Transport) serveSnapshot(c *conn, h *hello) {
	s := newStream(c, t.cfg.Timing, t.cfg.Limits.Chunk+chunkSlack)
	t.goroutines.keepAlive(s)
	err := t.install(&SnapshotReader{s: s}, h.Member)
	status := installed
	if err != nil {
		t.log().Warn("snapshot not installed", "from", wire.MemberID(h.Member), "error", err)
		status = "not installed: " + err.Error()
	} else {
		c.release() // the sender's next one may be here before this connection is closed
	}
	if s.write(appendFrame(nil, []byte(status[:min(len(status), maxStatus)]))) != nil {
		return // the sender retries
	}
	// The sender closes when it has read the answer. Closing first, with chunks
	// unread, could reset the connection and lose the answer.
	timeout := time.AfterFunc(t.cfg.Timing.KeepAliveTimeout, func() { _ = s.Close() })
	defer timeout.Stop()
	_, _ = io.Copy(io.Discard, s.r)
}

func (t *Transport) install(r *SnapshotReader, from uint64) error {
	header := new(wire.SnapshotHeader)
	if err := r.receive(header); err != nil {
		return err
	}
	if v := header.GetVersion(); v > wire.SnapshotVersion {
		return fmt.Errorf("transport: unsupported snapshot version: want at most %d, got %d: upgrade this member", wire.SnapshotVersion, v)
	}
	r.header = header
	if err := t.cfg.Handler.Snapshot(from, r); err != nil {
		return err
	}
	if !errors.Is(r.end, io.EOF) {
		return fmt.Errorf("%w: the handler did not read the whole snapshot", ErrBadFrame)
	}
	return nil
}
