package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// RequestError is why a member could not do what it was asked.
type RequestError struct {
	Failure wire.Failure
	Text    string
}

// Error returns the member's text.
func (e *RequestError) Error() string { return e.Text }

// RepeatedError is a RequestError of the last member that was asked, where the connection to an earlier one was lost: what that has begun
// may still have an effect.
type RepeatedError struct{ Last *RequestError }

// Error returns the last member's text.
func (e *RepeatedError) Error() string { return e.Last.Error() }

func (e *RepeatedError) Unwrap() error { return e.Last }

// maxAnswer bounds an answer that this process has not read yet.
const maxAnswer = 64 << 20

var (
	errLinkLost = errors.New("the connection to the member was lost")
	errStopping = errors.New("the member is shutting down")
	// ErrTooLarge: the answer exceeds the limit.
	ErrTooLarge = fmt.Errorf("the answer exceeds %d MiB: ask for less at once, or open a node", maxAnswer>>20)
	errSlow     = errors.New("this process reads the answer more slowly than it comes")
	// ErrNotSent: no member was asked.
	ErrNotSent = errors.New("the request was not sent")
	// ErrTooManyStreams: this process has as many watches and observers as a member serves.
	ErrTooManyStreams = fmt.Errorf("limit exceeded: this process has %d watches and observers already", maxStreams)
)

// What a member answers at once for one client, at most, less what may have been cancelled
// and is not ended there yet. Requests with one answer wait for a place; those whose answer is
// a stream have others, since a stream may never end.
const (
	maxAnswers = 96
	maxStreams = 128
)

// asking is the questions that have no answer yet.
type asking struct {
	mu      sync.Mutex
	last    uint64               // guarded by mu; number of a question
	pending map[uint64]*question // guarded by mu

	// A token for each that is under way.
	answers, streams chan struct{}
}

func newAsking() asking {
	return asking{
		pending: make(map[uint64]*question),
		answers: make(chan struct{}, maxAnswers), streams: make(chan struct{}, maxStreams),
	}
}

// question is a request under way. One goroutine reads its answer.
type question struct {
	id    uint64
	link  *link
	ctx   context.Context
	wake  chan struct{}          // holds a token when there is something to read
	owed  bool                   // the member answers at once if a quorum is reachable from it
	whole atomic.Bool            // no other member continues the answer
	done  func(*question, error) // instead of a reader: is called with the end of the answer, and must not block; nil: there is one

	mu     sync.Mutex
	buffer bytes.Buffer // guarded by mu; of the answer
	ended  bool         // guarded by mu
	err    error        // guarded by mu; with ended
}

// begin sends a request to a member, once one is connected.
func (g *Group) begin(ctx context.Context, r *wire.Request, owed bool) (*question, error) {
	if n := len(r.GetBody()); n > wire.MaxRequest {
		return nil, &RequestError{wire.Failure_FAILURE_TOO_LARGE, fmt.Sprintf("limit exceeded: a request of %d bytes, at most %d", n, wire.MaxRequest)}
	}
	for {
		l, changed, _ := g.place.get()
		if l != nil {
			q, err := g.beginAt(ctx, l, r, owed)
			if err == nil {
				return q, nil
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-g.lifetime.Done():
			return nil, g.closed()
		}
	}
}

// beginAt sends a request on a link.
func (g *Group) beginAt(ctx context.Context, l *link, r *wire.Request, owed bool) (*question, error) {
	q := g.asking.add(ctx, l, owed, nil)
	r = &wire.Request{Id: q.id, Kind: r.GetKind(), Body: r.GetBody(), Stale: r.GetStale()}
	if err := l.conn.SendWait(ctx, &wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: r}}, len(r.GetBody())); err != nil {
		g.asking.remove(q)
		return nil, err
	}
	return q, nil
}

// add adds a question. done is as in question: it is complete before the end of the link can
// find it, which is reported on another goroutine.
func (a *asking) add(ctx context.Context, l *link, owed bool, done func(*question, error)) *question {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	q := &question{id: a.last, link: l, ctx: ctx, wake: make(chan struct{}, 1), owed: owed, done: done}
	a.pending[q.id] = q
	return q
}

func (a *asking) remove(q *question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, q.id)
}

// owed reports whether a link owes an answer that takes a quorum and no longer than that.
func (a *asking) owed(l *link) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.pending { // order: any
		if q.link == l && q.owed {
			return true
		}
	}
	return false
}

// whole reports whether a link is to answer something that no other member continues.
func (a *asking) whole(l *link) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.pending { // order: any
		if q.link == l && q.whole.Load() {
			return true
		}
	}
	return false
}

// finish ends a question. The member is asked to stop if it has not answered.
func (g *Group) finish(q *question) {
	g.asking.remove(q)
	q.mu.Lock()
	ended := q.ended
	q.mu.Unlock()
	if !ended {
		q.link.conn.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Cancel{Cancel: q.id}}, 0)
	}
}

// answered receives a part of an answer, on the goroutine that reads the connection.
func (a *asking) answered(l *link, part *wire.Answer) {
	a.mu.Lock()
	q := a.pending[part.GetId()]
	a.mu.Unlock()
	if q == nil || q.link != l {
		return // it was cancelled
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.ended:
		return
	case q.buffer.Len()+len(part.GetPart()) > maxAnswer:
		q.ended, q.err = true, errSlow
		l.conn.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Cancel{Cancel: q.id}}, 0)
	default:
		q.buffer.Write(part.GetPart())
		if q.ended = part.GetLast(); part.GetFailure() != wire.Failure_FAILURE_NONE {
			q.err = &RequestError{part.GetFailure(), part.GetError()}
		}
	}
	if q.signal(); q.ended && q.done != nil {
		q.done(q, q.err)
	}
}

// lost ends the questions that a link has not answered.
func (a *asking) lost(l *link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, q := range a.pending { // order: they are independent of each other
		if q.link == l {
			if q.done != nil {
				delete(a.pending, id)
			}
			q.mu.Lock()
			if !q.ended {
				q.ended, q.err = true, errLinkLost
			}
			q.signal()
			q.mu.Unlock()
		}
	}
}

func (q *question) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Read implements io.Reader: it reads the answer, and blocks until there is some.
func (q *question) Read(b []byte) (int, error) {
	if err := q.await(); err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.buffer.Read(b)
}

// await blocks until there is something to read, or returns why there will be nothing more.
func (q *question) await() error {
	for {
		q.mu.Lock()
		some, ended, err := q.buffer.Len() > 0, q.ended, q.err
		q.mu.Unlock()
		switch {
		case some:
			return nil
		case ended && err != nil:
			return err
		case ended:
			return io.EOF
		}
		select {
		case <-q.wake:
		case <-q.ctx.Done():
			return q.ctx.Err()
		}
	}
}

// again reports whether another member may be asked the same. One that is shutting down is left,
// with all that is under way there: no other failure of a request concerns the connection.
func (g *Group) again(q *question, err error) bool {
	var r *RequestError
	if errors.As(err, &r) && r.Failure == wire.Failure_FAILURE_CLOSED {
		g.mailbox.Post(func() { g.leaving.note(q.link.conn.Peer().Member) })
		q.link.conn.Close(errStopping)
		return true
	}
	return errors.Is(err, errLinkLost)
}

// awaitPlace blocks while as many requests are under way as a member answers at once.
func (a *asking) awaitPlace(ctx, lifetime context.Context) error {
	select {
	case a.answers <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-lifetime.Done():
		return context.Cause(lifetime)
	}
}

func (a *asking) leavePlace() { <-a.answers }

// Ask has a member answer a request. It blocks until it has, or ctx is done. With repeat the
// request goes to another member if the connection is lost; without, the result is unknown
// then (wire.Failure_FAILURE_UNKNOWN). A refusal of another member is a RepeatedError.
func (g *Group) Ask(ctx context.Context, r *wire.Request, repeat bool) ([]byte, error) {
	if err := g.asking.awaitPlace(ctx, g.lifetime); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	defer g.asking.leavePlace()
	lost := false // the connection to a member that was asked
	for asked := false; ; asked = true {
		q, err := g.begin(ctx, r, !r.GetStale())
		switch {
		case err != nil && asked:
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		answer, err := io.ReadAll(q)
		g.finish(q)
		switch {
		case errors.Is(err, errSlow):
			return nil, ErrTooLarge
		case errors.Is(err, errLinkLost) && !repeat:
			return nil, &RequestError{wire.Failure_FAILURE_UNKNOWN, "outcome unknown: " + err.Error()}
		case g.again(q, err):
			lost = lost || errors.Is(err, errLinkLost)
			continue
		}
		if refused := (*RequestError)(nil); lost && errors.As(err, &refused) {
			err = &RepeatedError{refused}
		}
		return answer, err
	}
}

// Query implements client.Group. Fixed must be nil: there is no feed that an answer could be
// in order with.
func (g *Group) Query(ctx context.Context, q machine.Query, opts client.QueryOptions) (any, error) {
	kind, body, err := machine.EncodeQuery(q)
	if err != nil {
		return nil, err
	}
	answer, err := g.Ask(ctx, &wire.Request{Kind: kind, Body: body, Stale: opts.Stale}, true)
	if err != nil {
		return nil, err
	}
	return machine.DecodeAnswer(kind, answer)
}
