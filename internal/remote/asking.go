package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// The kinds of requests besides the queries of package machine.
const (
	KindWatch   = "watch"   // WatchBody; a stream of wire.KeyChange
	KindObserve = "observe" // the name of an election; a stream of Observed
)

// WatchBody is the body of a KindWatch.
type WatchBody struct {
	Prefix string
	After  uint64
}

// Observed is a leader; nil: there is none.
type Observed struct{ Leader *wire.Leader }

// RequestError is why a member could not do what it was asked.
type RequestError struct {
	Failure wire.Failure
	Text    string
}

// Error returns the member's text.
func (e *RequestError) Error() string { return e.Text }

// maxAnswer bounds an answer that this process has not read yet.
const maxAnswer = 64 << 20

var (
	errLinkLost = errors.New("the connection to the member was lost")
	errStopping = errors.New("the member is shutting down")
	errStarted  = errors.New("the member has started too recently to continue a watch")
	// ErrTooLarge: the answer exceeds the limit.
	ErrTooLarge = fmt.Errorf("the answer exceeds %d MiB: ask for less at once, or open a node", maxAnswer>>20)
	errSlow     = errors.New("this process reads the answer more slowly than it comes")
	// ErrNotSent: no member was asked. With repeat one may have been, whose answer was lost.
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
	id   uint64
	link *link
	ctx  context.Context
	wake chan struct{} // holds a token when there is something to read

	mu     sync.Mutex
	buffer bytes.Buffer // guarded by mu; of the answer
	ended  bool         // guarded by mu
	err    error        // guarded by mu; with ended
}

// begin sends a request to a member, once one is connected.
func (g *Group) begin(ctx context.Context, r *wire.Request) (*question, error) {
	for {
		l, changed, _ := g.place.get()
		if l != nil {
			q := g.asking.add(ctx, l)
			r := &wire.Request{Id: q.id, Kind: r.GetKind(), Body: r.GetBody(), Stale: r.GetStale()}
			err := l.conn.SendWait(ctx, &wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: r}}, len(r.GetBody()))
			if err == nil {
				return q, nil
			}
			g.asking.remove(q)
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

func (a *asking) add(ctx context.Context, l *link) *question {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	q := &question{id: a.last, link: l, ctx: ctx, wake: make(chan struct{}, 1)}
	a.pending[q.id] = q
	return q
}

func (a *asking) remove(q *question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, q.id)
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
	q.signal()
}

// lost ends the questions that a link has not answered.
func (a *asking) lost(l *link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.pending { // order: they are independent of each other
		if q.link == l {
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

// again reports whether another member may be asked the same. One that is shutting down is
// left.
func (q *question) again(err error) bool {
	var r *RequestError
	if errors.As(err, &r) && r.Failure == wire.Failure_FAILURE_CLOSED {
		q.link.conn.Close(errStopping)
		return true
	}
	return errors.Is(err, errLinkLost)
}

// awaitPlace blocks while as many requests are under way as a member answers at once.
func (g *Group) awaitPlace(ctx context.Context) error {
	select {
	case g.asking.answers <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-g.lifetime.Done():
		return g.closed()
	}
}

func (g *Group) leavePlace() { <-g.asking.answers }

// Ask has a member answer a request. It blocks until it has, or ctx is done. With repeat the
// request goes to another member if the connection is lost; without, the result is unknown
// then (wire.Failure_FAILURE_UNKNOWN).
func (g *Group) Ask(ctx context.Context, r *wire.Request, repeat bool) ([]byte, error) {
	if err := g.awaitPlace(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	defer g.leavePlace()
	for {
		q, err := g.begin(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		answer, err := io.ReadAll(q)
		g.finish(q)
		switch {
		case errors.Is(err, errSlow):
			return nil, ErrTooLarge
		case errors.Is(err, errLinkLost) && !repeat:
			return nil, &RequestError{wire.Failure_FAILURE_UNKNOWN, "outcome unknown: " + err.Error()}
		case q.again(err):
			continue
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

// stream asks a member for a stream of values, again and again until ctx is done or the
// answer ends otherwise; or returns ErrTooManyStreams. next makes the request, and receive gets each value; false ends the
// stream without an error.
func stream[V any](ctx context.Context, g *Group, next func() *wire.Request, receive func(V) bool) error {
	select {
	case g.asking.streams <- struct{}{}:
		defer func() { <-g.asking.streams }()
	default:
		return ErrTooManyStreams
	}
	var first *link
	for moves := 0; ; {
		q, err := g.begin(ctx, next())
		if err != nil {
			return g.streamFault(ctx, err)
		}
		if first == nil {
			first = q.link
		}
		left, err := receiveAll(g, q, func(v V) bool {
			moves = 0
			return receive(v)
		})
		switch {
		case left:
			return nil
		case q.again(err), errors.Is(err, errSlow):
		case compacted(err) && q.link != first && moves < maxMoves:
			moves++
			q.link.conn.Close(errStarted)
		default:
			return g.streamFault(ctx, err)
		}
	}
}

// maxMoves is how many members in turn a stream goes on to that have started too recently to
// continue it. Others may have the changes still.
const maxMoves = 4

func compacted(err error) bool {
	var r *RequestError
	return errors.As(err, &r) && r.Failure == wire.Failure_FAILURE_COMPACTED
}

// streamFault turns the end of a stream into the fault that a feed of this process would
// have.
func (g *Group) streamFault(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return &client.Fault{Kind: client.Interrupted, Cause: client.ContextError(ctx)}
	case g.lifetime.Err() != nil:
		return &client.Fault{Kind: client.Closed, Cause: g.closed()}
	case compacted(err):
		return &client.Fault{Kind: client.Compacted}
	}
	return err
}

// Watch implements client.Group. After a change of members it continues where it was.
func (g *Group) Watch(ctx context.Context, prefix string, after uint64, yield func(wire.KeyChange) bool) error {
	return stream(ctx, g, func() *wire.Request {
		body, _ := json.Marshal(WatchBody{prefix, after}) // a string and a number: never fails
		return &wire.Request{Kind: KindWatch, Body: body}
	}, func(c wire.KeyChange) bool {
		after = c.Index
		return yield(c)
	})
}

// Observe implements client.Group. After a change of members it continues with the leader
// of that moment, if that is another one.
func (g *Group) Observe(ctx context.Context, election string, yield func(*wire.Leader) bool) error {
	var last *Observed
	return stream(ctx, g, func() *wire.Request {
		return &wire.Request{Kind: KindObserve, Body: []byte(election)}
	}, func(o Observed) bool {
		if last != nil && client.SameLeader(o.Leader, last.Leader) {
			return true
		}
		last = &o
		return yield(o.Leader)
	})
}
