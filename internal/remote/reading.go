package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// KindCredit is the request that gives credit for an answer, with a CreditBody. A member that does not know it
// refuses it, which has no effect.
const KindCredit = "credit"

// streamCredit is how much of a Stream's answer a member sends before this process has read it. The connection is
// also that of locks, so it is read whatever becomes of the answer.
const streamCredit = 8 << 20

// StreamBody is the body of the request of a Stream.
type StreamBody struct {
	Credit int // bytes that the member may send at once; 0: any number, as from a client that does not know of it
}

// CreditBody is the body of a KindCredit.
type CreditBody struct {
	Request uint64 // whose answer may go on
	Bytes   int    // more of them
}

// Stream has a member answer a request, and read read the answer. It blocks as Ask until read
// has returned, and returns its error. If the connection is lost before read has got anything,
// another member is asked. A read that blocks holds up the answer alone, for as long as it likes.
func (g *Group) Stream(ctx context.Context, kind string, read func(io.Reader) error) error {
	if err := g.asking.awaitPlace(ctx, g.lifetime); err != nil {
		return err
	}
	defer g.asking.leavePlace()
	for {
		again, err := g.streamOnce(ctx, kind, read)
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

func (g *Group) streamOnce(ctx context.Context, kind string, read func(io.Reader) error) (again bool, err error) {
	body, _ := json.Marshal(StreamBody{streamCredit}) // a number: never fails
	q, err := g.begin(ctx, &wire.Request{Kind: kind, Body: body}, false)
	if err != nil {
		return false, err
	}
	defer g.finish(q)
	q.whole.Store(true)
	if err := q.await(); err != nil && g.again(q, err) {
		return true, nil
	}
	return false, read(&creditReader{group: g, q: q})
}

// creditReader reads an answer, and gives the member credit for what has been read.
type creditReader struct {
	group *Group
	q     *question
	read  int // without credit
}

// Read implements io.Reader.
func (r *creditReader) Read(b []byte) (int, error) {
	n, err := r.q.Read(b)
	if r.read += n; r.read >= streamCredit/2 {
		r.giveCredit(r.read)
		r.read = 0
	}
	return n, err
}

// busyPause is how long a credit waits that a busy member has refused.
const busyPause = 100 * time.Millisecond

// giveCredit blocks until the member has the credit: the answer does not go on without. The other half of the
// credit is on its way meanwhile. What else can fail, the reader of the question learns: no other member answers it.
func (r *creditReader) giveCredit(read int) {
	g, q := r.group, r.q
	body, _ := json.Marshal(CreditBody{q.id, read}) // two numbers: never fails
	for {
		given, err := g.beginAt(q.ctx, q.link, &wire.Request{Kind: KindCredit, Body: body}, false)
		if err != nil {
			return
		}
		err = given.await()
		g.finish(given)
		var refused *RequestError
		if !errors.As(err, &refused) || refused.Failure != wire.Failure_FAILURE_BUSY {
			return
		}
		select {
		case <-time.After(busyPause):
		case <-q.ctx.Done():
			return
		}
	}
}
