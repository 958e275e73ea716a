package transport

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/transport/queue"
	"github.com/conclave-go/conclave/cluster/transport/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// itemBytes is what a queued message takes besides its content.
const itemBytes = 256

// ClientConn is an established connection between a client and a member, at either end.
// Its methods may be called concurrently, except for Read.
type ClientConn struct {
	s        *stream
	peer     Peer
	account  *slots.Account // nil: this is the client's end
	reading  int            // bytes that the account has for the frame that is being read; the reader's
	queue    *queue.Queue[proto.Message]
	maxWrite int // bytes of a frame that the other end accepts

	mu    sync.Mutex // guards cause
	cause error
}

// clientLimits are those of one end of a connection.
type clientLimits struct {
	read, write int // bytes of a frame
	queue       int // bytes
}

func newClientConn(c *conn, p Peer, t Timing, l clientLimits) *ClientConn {
	q := queue.New[proto.Message](math.MaxInt, l.queue)
	q.Reset(true)
	c.afterClose(func() { q.Reset(false) })
	return &ClientConn{s: newSizedStream(c, t, l.read, clientBuffer, clientBuffer), peer: p, queue: q, maxWrite: l.write}
}

// countIn has the memory that the connection takes counted.
func (c *ClientConn) countIn(m *slots.Memory) {
	c.account = m.Open(slots.HostOf(c.s.RemoteAddr()), c.Close)
	c.s.grown = c.holdFrame
	c.s.afterClose(c.account.End)
}

// Hold counts bytes that the caller keeps for the connection, and those with a negative sign
// that it keeps no longer. If a member holds too much for all of its clients
// (Limits.ClientsBytes), it closes the connection for which it holds the most.
func (c *ClientConn) Hold(bytes int) { c.account.Add(bytes) }

// holdFrame is called when the memory for a frame has grown to that size. A decoded frame takes
// as much again.
func (c *ClientConn) holdFrame(size int) {
	if size <= clientBuffer {
		size = 0 // every connection has that
	}
	c.account.Add(2*size - c.reading)
	c.reading = 2 * size
}

// Peer describes the other end, as the handshake has proven it. Member is the ID of the
// client, or of the member.
func (c *ClientConn) Peer() Peer { return c.peer }

// Read blocks until the next frame and reads it into m, which keeps no reference to the
// connection's memory. One reader at a time. An error closes the connection: a malformed
// frame or one beyond the limit, a broken connection, and ErrSilent if nothing, not even a
// keep-alive, has arrived for KeepAliveTimeout. The error is Err.
//
// What arrived before Close may still be read after it. A frame that is a valid message of
// a later version may leave m without content.
func (c *ClientConn) Read(m proto.Message) error {
	body, err := c.s.read()
	if err == nil {
		if err = wire.Decode(body, m); err == nil {
			return nil
		}
		err = fmt.Errorf("%w: %w", ErrBadFrame, err)
	}
	if isTimeout(err) {
		err = fmt.Errorf("%w: %w", ErrSilent, err)
	}
	c.Close(c.lost(err))
	return c.Err()
}

// Send queues m, which must not change afterwards: it is encoded on the writer's goroutine.
// Messages are sent in the order in which Send and SendWait have queued them. Send never
// blocks. It returns false if the connection is closed, or if the queue is full, which
// closes it with ErrQueueFull. True promises nothing.
//
// size is about the memory that m takes, in bytes, without what a message costs anyway: the
// length of its payload. It counts against Limits.ClientQueueBytes and nothing else, so it
// need not be exact, and encoding m to measure it would be a waste. A message whose frame
// is larger than the other end accepts (Limits.Frame of a member's, Limits.ClientFrame of a
// client's) closes the connection with ErrTooLarge.
func (c *ClientConn) Send(m proto.Message, size int) bool {
	size = itemBytes + max(0, size)
	if c.queue.Push(0, m, size) {
		c.account.Add(size)
		return true
	}
	c.Close(c.lost(ErrQueueFull))
	return false
}

// Offer is Send, but a full queue drops m and leaves the connection open: it is for what is sent
// again if it is not answered. bulk is sent when nothing else is queued, and has half of the
// queue.
func (c *ClientConn) Offer(m proto.Message, size int, bulk bool) bool {
	size = itemBytes + max(0, size)
	if bulk {
		return c.queue.PushBulk(0, m, size)
	}
	return c.queue.Push(0, m, size)
}

// SendWait is Send, but blocks while a quarter of the queue has no room for m, so that
// Send has the rest: it is for the parts of large answers. Messages that wait are queued in
// their order. An error means that m will not be sent: the cause of ctx, Err if the
// connection is closed, or ErrTooLarge if the other end would not accept m, or the whole queue
// has no room for it. That error leaves the connection open.
func (c *ClientConn) SendWait(ctx context.Context, m proto.Message, size int) error {
	size = itemBytes + max(0, size)
	if size > c.queue.MaxBytes() {
		return fmt.Errorf("%w: got a message of %d bytes, want at most %d", ErrTooLarge, size, c.queue.MaxBytes())
	}
	if n := proto.Size(m); n > c.maxWrite {
		return fmt.Errorf("%w: got a message of %d bytes, want at most %d", ErrTooLarge, n, c.maxWrite)
	}
	switch queued := c.queue.PushWait(ctx, c.Done(), m, size); {
	case c.isClosed():
		return c.Err()
	case !queued:
		return context.Cause(ctx)
	}
	c.account.Add(size)
	return nil
}

// Done is closed when the connection is.
func (c *ClientConn) Done() <-chan struct{} { return c.s.done }

func (c *ClientConn) isClosed() bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// Close closes the connection without waiting. What is queued is lost. The first cause is
// what Err returns; nil: ErrClosed.
func (c *ClientConn) Close(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	c.mu.Lock()
	if c.cause == nil && !c.isClosed() {
		c.cause = cause
	}
	c.mu.Unlock()
	_ = c.s.Close() // cause is the error to report
}

// Err returns why the connection is closed: the cause of the first Close, or ErrClosed if
// the Transport or Dialer was closed; nil: it is open.
func (c *ClientConn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil && c.isClosed() {
		return ErrClosed
	}
	return c.cause
}

func (c *ClientConn) lost(err error) error {
	other := "member"
	if c.peer.Inbound {
		other = "client"
	}
	return fmt.Errorf("connection to %s %v at %s lost: %w", other, wire.MemberID(c.peer.Member), c.peer.Remote, closedByPeer(err))
}

// write sends what is queued, and keep-alives, until the connection is closed.
func (c *ClientConn) write() { c.Close(c.lost(c.writeAll())) }

// writeAll has one timer for each connection, which every write resets: thousands of
// connections are idle most of the time, and those that are not need no keep-alives.
func (c *ClientConn) writeAll() error {
	interval := c.s.timing.ClientKeepAlive
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		var err error
		select {
		case <-c.Done():
			return ErrClosed
		case <-c.queue.Ready:
			var written int
			written, err = writeQueue(c.s, c.queue, c.encode)
			c.account.Add(-written)
		case <-timer.C:
			err = c.s.write(appendFrame(nil, nil))
		}
		if isTimeout(err) {
			err = fmt.Errorf("%w: %w", ErrQueueFull, err)
		}
		if err != nil {
			return err
		}
		timer.Reset(interval)
	}
}

func (c *ClientConn) encode(buf []byte, m proto.Message) ([]byte, error) {
	start := len(buf)
	buf, err := appendMessage(buf, m)
	if n := len(buf) - start - frameHeader; err == nil && n > c.maxWrite {
		err = fmt.Errorf("%w: got a message of %d bytes, want at most %d", ErrTooLarge, n, c.maxWrite)
	}
	return buf, err
}
