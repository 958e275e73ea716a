package transport

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	readBuffer = 64 << 10
	writePiece = 256 << 10 // bytes gathered for one write
)

// errIdle ends a stream that has had nothing to carry for long.
var errIdle = errors.New("transport: idle")

// stream carries frames over an established connection. Both ends send beats,
// so that silence, and not only a reset, tells that the other is gone: after a
// partition TCP itself may stay stuck for minutes.
type stream struct {
	*conn
	timing Timing
	limit  int // bytes of one frame
	r      *bufio.Reader
	buf    []byte // of the last frame read

	out []byte // the pump's, to gather what it writes

	mu sync.Mutex // serialises writes
}

func newStream(c *conn, t Timing, limit int) *stream {
	return &stream{conn: c, timing: t, limit: limit, r: bufio.NewReaderSize(&patientReader{c, t.Silence}, readBuffer)}
}

// patientReader fails when the connection makes no progress for a while,
// however long a frame takes as a whole.
type patientReader struct {
	net.Conn
	patience time.Duration
}

func (p *patientReader) Read(b []byte) (int, error) {
	if err := p.SetReadDeadline(time.Now().Add(p.patience)); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

// read returns the next frame's body, which is valid until the next call. It
// passes over beats.
func (s *stream) read() ([]byte, error) {
	for {
		if cap(s.buf) > writePiece { // one large frame is no reason to keep its memory
			s.buf = nil
		}
		body, err := readFrame(s.r, s.limit, s.buf)
		if err != nil || len(body) > 0 {
			return body, err
		}
	}
}

// write sends whole frames. It fails when the other end does not take a piece
// for a while; the connection is then of no use.
func (s *stream) write(frames []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(frames) > 0 {
		n := min(len(frames), writePiece)
		if err := s.SetWriteDeadline(time.Now().Add(s.timing.Silence)); err != nil {
			return err
		}
		if _, err := s.Conn.Write(frames[:n]); err != nil {
			return err
		}
		frames = frames[n:]
	}
	return nil
}

// pump is the stream's writing side: it flushes whenever ready says so, sends
// beats, and closes the connection when it cannot, which ends the reading side
// as well. With idle it ends after that long without work. ready and flush may
// be nil.
func (s *stream) pump(ready <-chan struct{}, flush func(*stream) error, idle time.Duration) error {
	defer func() { _ = s.Close() }() // the error that counts is the one returned
	ticker := time.NewTicker(s.timing.Beat)
	defer ticker.Stop()
	worked := time.Now()
	for {
		var err error
		select {
		case <-s.done:
			return net.ErrClosed
		case <-ready:
			worked = time.Now()
			err = flush(s)
		case now := <-ticker.C:
			if idle > 0 && now.Sub(worked) >= idle {
				return errIdle
			}
			err = s.write(beat)
		}
		if err != nil {
			return err
		}
	}
}

// beats runs a pump that has nothing but beats to send.
func (t *Transport) beats(s *stream) {
	t.goroutines.start("beats", func() { _ = s.pump(nil, nil, 0) }) // the reading side reports
}
