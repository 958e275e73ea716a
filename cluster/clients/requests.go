package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

const (
	// maxRequests bounds the requests of one client that are being answered: more than an
	// honest one makes, with those that it has just cancelled.
	maxRequests = 256
	// answerPart bounds the bytes of an answer that are sent together.
	answerPart = 128 << 10
	// requestBytes is about what answering a request takes, besides its body and its answer.
	requestBytes = 16 << 10
)

var (
	errTooManyRequests = tickets.BusyError(fmt.Sprintf("limit exceeded: the member answers %d requests of this client already", maxRequests))
	errLongRequest     = fmt.Errorf("%w: a request with a body of more than %d bytes", ErrTooLarge, wire.MaxRequest)
	errSameRequest     = errors.New("two requests with one number")
	errRequestFailed   = errors.New("internal error in the member that was asked: its log has the details")
)

// requests are the requests of a client that are being answered.
type requests struct {
	routines sync.WaitGroup

	mu      sync.Mutex
	running map[uint64]context.CancelFunc // guarded by mu
}

// begin answers a request on a goroutine of its own. errTooManyRequests: the client makes too
// many at once, which it may do by mistake.
func (r *requests) begin(ctx context.Context, id uint64, answer func(context.Context)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.running[id] != nil:
		return errSameRequest
	case len(r.running) >= maxRequests:
		return errTooManyRequests
	}
	ctx, cancel := context.WithCancel(ctx)
	r.running[id] = cancel
	r.routines.Go(func() {
		defer r.end(id)
		answer(ctx)
	})
	return nil
}

func (r *requests) end(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[id]()
	delete(r.running, id)
}

func (r *requests) cancel(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.running[id]; cancel != nil {
		cancel()
	}
}

func (r *requests) wait() { r.routines.Wait() }

// answerClient answers a request of a client.
func (s *Server) answerClient(ctx context.Context, c *conn, r *wire.Request) {
	answer := &answerWriter{ctx: ctx, conn: c, id: r.GetId()}
	defer func() { c.conn.Hold(-answer.held) }()
	err := s.serveRequest(ctx, c, r, answer)
	if ctx.Err() != nil {
		return // cancelled, or the connection ends: another member may answer
	}
	// It fails only if the connection has ended, which the client knows.
	_ = c.sendAnswer(ctx, s.lastPart(r.GetId(), err))
}

// serveRequest calls Serve. A panic is the failure of that request: the connection is also that
// of the client's sessions.
func (s *Server) serveRequest(ctx context.Context, c *conn, r *wire.Request, answer Answer) (err error) {
	defer func() {
		if r := recover(); r != nil {
			s.cfg.Logger.Error("panic in a request of a client", "client", wire.MemberID(c.client), "name", c.conn.Peer().Name, "panic", r, "stack", string(debug.Stack()))
			err = errRequestFailed
		}
	}()
	return s.cfg.Serve(ctx, r, answer)
}

// maxFailureText bounds the text of a failure, in bytes.
const maxFailureText = 64 << 10

// lastPart ends the answer of a request. The text of an error may have bytes that the client has
// chosen: it must neither be refused as a frame nor exceed one, which would end the connection.
func (s *Server) lastPart(id uint64, err error) *wire.Answer {
	last := &wire.Answer{Id: id, Last: true}
	if err != nil {
		last.Failure, last.Error = s.cfg.Failure(err)
		last.Error = strings.ToValidUTF8(last.GetError()[:min(len(last.GetError()), maxFailureText)], "\uFFFD")
	}
	return last
}

// beginRequest has a request answered. An error ends the connection.
func (s *Server) beginRequest(ctx context.Context, c *conn, r *wire.Request) error {
	err := errLongRequest
	if len(r.GetBody()) <= wire.MaxRequest {
		err = c.requests.begin(ctx, r.GetId(), func(ctx context.Context) {
			held := requestBytes + len(r.GetBody())
			c.conn.Hold(held)
			defer c.conn.Hold(-held)
			s.answerClient(ctx, c, r)
		})
	}
	if errors.Is(err, errTooManyRequests) || errors.Is(err, errLongRequest) {
		refused := s.lastPart(r.GetId(), err)
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_Answer{Answer: refused}}, len(refused.GetError()))
		return nil
	}
	return err
}

func (c *conn) sendAnswer(ctx context.Context, a *wire.Answer) error {
	return c.conn.SendWait(ctx, &wire.MemberFrame{Body: &wire.MemberFrame_Answer{Answer: a}}, len(a.GetPart())+len(a.GetError()))
}

// answerWriter sends an answer in parts. Write blocks while the client does not read.
type answerWriter struct {
	ctx  context.Context
	conn *conn
	id   uint64
	held int
}

// Hold implements Answer.
func (w *answerWriter) Hold(bytes int) {
	w.held += bytes
	w.conn.conn.Hold(bytes)
}

// Within implements Answer.
func (w *answerWriter) Within(ctx context.Context) Answer { return answerWithin{w, ctx} }

// Client implements Answer.
func (w *answerWriter) Client() (client uint64, host string) { return w.conn.client, w.conn.host() }

// Write implements io.Writer.
func (w *answerWriter) Write(b []byte) (n int, err error) { return w.write(w.ctx, b) }

func (w *answerWriter) write(ctx context.Context, b []byte) (n int, err error) {
	held := 2 * len(b) // with the value that it encodes
	w.conn.conn.Hold(held)
	defer w.conn.conn.Hold(-held)
	for rest := b; len(rest) > 0; {
		part := rest[:min(len(rest), answerPart)]
		if err := w.conn.sendAnswer(ctx, &wire.Answer{Id: w.id, Part: bytes.Clone(part)}); err != nil {
			return n, err
		}
		n += len(part)
		rest = rest[len(part):]
	}
	return n, nil
}

// answerWithin is an answer whose writes end with a context of their own as well.
type answerWithin struct {
	*answerWriter
	ctx context.Context
}

// Write implements io.Writer.
func (w answerWithin) Write(b []byte) (n int, err error) { return w.write(w.ctx, b) }
