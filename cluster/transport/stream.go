package transport

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readBuffer   = 64 << 10
	maxWrite     = 256 << 10 // bytes gathered for one write
	clientBuffer = 4 << 10   // for reading from a client, or from the member of one
	clientPiece  = 32 << 10  // bytes of one write there, so that the progress on a slow network shows
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
	buf    []byte // of the last frame read
	out    []byte // for writeQueue, to gather frames

	piece   int           // bytes of a write
	written atomic.Uint64 // bytes

	mu sync.Mutex // serializes writes
}

func newStream(c *conn, t Timing, limit int) *stream {
	return newSizedStream(c, t, limit, readBuffer, maxWrite)
}

func newSizedStream(c *conn, t Timing, limit, buffer, keep int) *stream {
	r := bufio.NewReaderSize(&progressReader{c, t.KeepAliveTimeout}, buffer)
	return &stream{conn: c, timing: t, limit: limit, keep: keep, r: r, piece: maxWrite}
}

// progressReader fails when nothing arrives for timeout, however long a whole
// frame takes.
type progressReader struct {
	net.Conn
	timeout time.Duration
}

func (r *progressReader) Read(b []byte) (int, error) {
	if err := r.SetReadDeadline(time.Now().Add(r.timeout)); err != nil {
		return 0, err
	}
	return r.Conn.Read(b)
}

// read returns the next frame's body, which is valid until the next call. It
// skips keep-alives.
func (s *stream) read() ([]byte, error) {
	for {
		if cap(s.buf) > s.keep { // do not keep the memory of one large frame
			s.buf = nil
		}
		body, err := readFrame(s.r, s.limit, s.buf)
		if err != nil || len(body) > 0 {
			return body, err
		}
	}
}

// write sends whole frames. It fails, and the connection is then useless, when
// the peer accepts no bytes for KeepAliveTimeout.
func (s *stream) write(frames []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(frames)
}

// writeKeepAlive writes a keep-alive, unless another write is in progress.
func (s *stream) writeKeepAlive() error {
	if !s.mu.TryLock() {
		return nil
	}
	defer s.mu.Unlock()
	return s.writeLocked(appendFrame(nil, nil))
}

// writeLocked is write with s.mu held.
func (s *stream) writeLocked(frames []byte) error {
	for len(frames) > 0 {
		n := min(len(frames), s.piece)
		if err := s.SetWriteDeadline(time.Now().Add(s.timing.KeepAliveTimeout)); err != nil {
			return err
		}
		if _, err := s.Conn.Write(frames[:n]); err != nil {
			return err
		}
		s.written.Add(uint64(n))
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

// keepAlive starts a writeLoop that sends nothing but keep-alives. The reading
// side reports its error.
func (t *Transport) keepAlive(s *stream) {
	t.goroutines.start("keep-alive", func() { _ = s.writeLoop(nil, nil, 0) })
}
