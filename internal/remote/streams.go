package remote

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// The kinds of requests besides the queries of package machine.
const (
	KindWatch   = "watch"          // WatchBody; a stream of Watched
	KindObserve = "observe"        // the name of an election; a stream of Observed
	KindShards  = "shards-changes" // the name of a set of shards; a stream of client.ShardsUpdate
)

// WatchBody is the body of a KindWatch.
type WatchBody struct {
	Prefix string
	After  uint64
	// Progress asks for values with nothing but Progress, which a client of an earlier build
	// would take for changes.
	Progress bool `json:",omitempty"`
}

// Watched is a change, or says that there is none with the prefix up to an index: a watch of
// what changes rarely could not be continued otherwise, since members remember the latest
// changes of all keys only.
type Watched struct {
	fact.KeyChange
	Progress uint64 `json:",omitempty"` // 0: a change
}

// Observed is a leader; nil: there is none.
type Observed struct{ Leader *fact.Leader }

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
	for {
		q, err := g.begin(ctx, next(), false)
		if err != nil {
			return g.streamFault(ctx, err)
		}
		left, err := receiveAll(g, q, receive)
		if left {
			return nil
		}
		if !g.again(q, err) && !errors.Is(err, errSlow) {
			return g.streamFault(ctx, err)
		}
	}
}

// follow is stream for what begins with a state. If ctx is done before that has come, no quorum was reachable.
func follow[V any](ctx context.Context, g *Group, next func() *wire.Request, receive func(V) bool) error {
	if ctx.Err() != nil { // before the call: whether there is a quorum is not known
		return g.streamFault(ctx, nil)
	}
	known := false
	err := stream(ctx, g, next, func(v V) bool {
		known = true
		return receive(v)
	})
	if !known && client.IsKind(err, client.Interrupted) {
		return &client.Fault{Kind: client.Unavailable, Detail: g.Unreachable(), Cause: client.ContextError(ctx)}
	}
	return err
}

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
func (g *Group) Watch(ctx context.Context, prefix string, after uint64, yield func(fact.KeyChange) bool) error {
	return stream(ctx, g, func() *wire.Request {
		body, _ := json.Marshal(WatchBody{prefix, after, true}) // a string, a number and a flag: never fails
		return &wire.Request{Kind: KindWatch, Body: body}
	}, func(w Watched) bool {
		if w.Progress != 0 {
			after = max(after, w.Progress)
			return true
		}
		after = w.Index
		return yield(w.KeyChange)
	})
}

// Observe implements client.Group. After a change of members it continues with the leader
// of that moment, if that is another one.
func (g *Group) Observe(ctx context.Context, election string, yield func(*fact.Leader) bool) error {
	var last *Observed
	return follow(ctx, g, func() *wire.Request {
		return &wire.Request{Kind: KindObserve, Body: []byte(election)}
	}, func(o Observed) bool {
		if last != nil && client.SameLeader(o.Leader, last.Leader) {
			return true
		}
		last = &o
		return yield(o.Leader)
	})
}

// FollowShards implements client.Group. After a change of members it continues with the state
// of that moment.
func (g *Group) FollowShards(ctx context.Context, set string, yield func(client.ShardsUpdate) bool) error {
	return follow(ctx, g, func() *wire.Request {
		return &wire.Request{Kind: KindShards, Body: []byte(set)}
	}, yield)
}
