package transport

import (
	"bufio"
	"errors"
	"net"
	"time"

	"github.com/conclave-go/conclave/cluster/transport/queue"
)

const (
	readBuffer   = 64 << 10
	maxWrite     = 256 << 10 // bytes gathered for one write
	clientBuffer = 4 << 10   // for reading from a client, or from the member of one
)

// errIdle ends a stream that has carried nothing for its idle timeout.
var errIdle = errors.New("transport: idle timeout")

// stream carries frames over an established connection. Both ends send
// keep-alives, because a partition may leave TCP itself stuck for minutes
// without a reset.
type stream struct {
	*conn
	timing Timing
	limit  int // bytes of one frame
	keep   int // bytes of buf that are kept for the next frame; of out, twice that
	r      *bufio.Reader
	buf    []byte         // of the last frame read
	out    []byte         // for writeQueue, to gather frames
	grown  func(size int) // gets the size of buf while a frame is read; nil: ignored

	writing chan struct{} // has a token while a write is under way
}

func newStream(c *conn, t Timing, limit int) *stream {
	return newSizedStream(c, t, limit, readBuffer, maxWrite)
}

func newSizedStream(c *conn, t Timing, limit, buffer, keep int) *stream {
	r := bufio.NewReaderSize(&progressReader{c, t.KeepAliveTimeout}, buffer)
	return &stream{conn: c, timing: t, limit: limit, keep: keep, r: r, writing: make(chan struct{}, 1)}
}

// progressReader fails when nothing arrives for timeout, however long a whole
// frame takes.
type progressReader struct {
	*conn
	timeout time.Duration
}

func (r *progressReader) Read(b []byte) (int, error) {
	if err := r.SetReadDeadline(time.Now().Add(r.timeout)); err != nil {
		return 0, err
	}
	n, err := r.Conn.Read(b)
	return n, r.note(err)
}

// read returns the next frame's body, which is valid until the next call. It
// skips keep-alives.
func (s *stream) read() ([]byte, error) {
	for {
		if cap(s.buf) > s.keep { // do not keep the memory of one large frame
			s.buf = nil
		}
		if s.grown != nil {
			s.grown(0)
		}
		body, err := readFrameGrowing(s.r, s.limit, s.buf, s.grown)
		if err != nil || len(body) > 0 {
			return body, err
		}
	}
}

// write sends whole frames. It fails, and the connection is then useless, when
// the peer accepts no bytes for KeepAliveTimeout.
func (s *stream) write(frames []byte) error {
	s.writing <- struct{}{}
	return s.finishWrite(frames)
}

// writeKeepAlive writes a keep-alive, unless another write is in progress.
func (s *stream) writeKeepAlive() error {
	select {
	case s.writing <- struct{}{}:
		return s.finishWrite(appendFrame(nil, nil))
	default:
		return nil
	}
}

// finishWrite is write once the token of writing has been put.
func (s *stream) finishWrite(frames []byte) error {
	defer func() { <-s.writing }()
	for len(frames) > 0 {
		n := min(len(frames), maxWrite)
		if err := s.SetWriteDeadline(time.Now().Add(s.timing.KeepAliveTimeout)); err != nil {
			return err
		}
		if _, err := s.Conn.Write(frames[:n]); err != nil {
			return s.note(err)
		}
		frames = frames[n:]
	}
	return nil
}

// writeLoop calls flush for each token of ready, sends keep-alives, and closes
// the connection when it returns, which ends the reading side as well. It
// returns errIdle after idle without a token, unless idle is zero. ready and
// flush may be nil.
func (s *stream) writeLoop(ready <-chan struct{}, flush func(*stream) error, idle time.Duration) error {
	defer func() { _ = s.Close() }() // the error that counts is the one returned
	ticker := time.NewTicker(s.timing.KeepAlive)
	defer ticker.Stop()
	active := time.Now()
	for {
		var err error
		select {
		case <-s.done:
			return net.ErrClosed
		case <-ready:
			active = time.Now()
			err = flush(s)
		case now := <-ticker.C:
			if idle > 0 && now.Sub(active) >= idle {
				return errIdle
			}
			err = s.writeKeepAlive()
		}
		if err != nil {
			return err
		}
	}
}

// writeQueue writes a part of what is queued, with as few writes as possible. It returns the bytes that
// the queue no longer has.
func writeQueue[T any](s *stream, q *queue.Queue[T], encode func([]byte, T) ([]byte, error)) (bytes int, err error) {
	items := q.Take(maxWrite)
	err = writeItems(s, items, encode)
	return q.Written(), err
}

func writeItems[T any](s *stream, items []T, encode func([]byte, T) ([]byte, error)) error {
	buf := s.out[:0]
	for i, item := range items {
		var err error
		if buf, err = encode(buf, item); err != nil {
			return err
		}
		if len(buf) < maxWrite && i < len(items)-1 {
			continue
		}
		if err := s.write(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	if s.out = buf; cap(buf) > 2*s.keep {
		s.out = nil // do not keep the memory of one large frame
	}
	return nil
}
