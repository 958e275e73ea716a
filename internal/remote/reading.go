package remote

import (
	"context"
	"encoding/json"
	"io"

	"github.com/conclave-go/conclave/internal/wire"
)

// Stream has a member answer a request, and read read the answer. It blocks as Ask until read
// has returned, and returns its error. If the connection is lost before read has got anything,
// another member is asked.
func (g *Group) Stream(ctx context.Context, r *wire.Request, read func(io.Reader) error) error {
	if err := g.awaitPlace(ctx); err != nil {
		return err
	}
	defer g.leavePlace()
	for {
		again, err := g.streamOnce(ctx, r, read)
		if !again {
			return err
		}
	}
}

// receiveAll passes the values of an answer on, and reports whether receive has left. The
// question is finished even if receive does not return: it is the body of an application's loop.
func receiveAll[V any](g *Group, q *question, receive func(V) bool) (left bool, err error) {
	defer g.finish(q)
	values := json.NewDecoder(q)
	for {
		var v V
		if err := values.Decode(&v); err != nil {
			return false, err
		}
		if !receive(v) {
			return true, nil
		}
	}
}

func (g *Group) streamOnce(ctx context.Context, r *wire.Request, read func(io.Reader) error) (again bool, err error) {
	q, err := g.begin(ctx, r, false)
	if err != nil {
		return false, err
	}
	defer g.finish(q)
	if err := q.await(); err != nil && g.again(q, err) {
		return true, nil
	}
	return false, read(q)
}
