package replica

import (
	"context"

	"github.com/conclave-go/conclave/cluster/core"
)

// TransferLeadership transfers leadership of the group to a voter, or to the most
// up-to-date one when to is 0. A follower forwards the request to the leader. It blocks
// until another member leads, or to does. It returns ErrNoSuccessor if the leader
// abandoned the transfer. After ctx's error leadership may still move.
func (r *Requests) TransferLeadership(ctx context.Context, to uint64) error {
	return r.transfer(ctx, func(c *core.Core, done chan<- error) { c.Transfer(to, done) })
}

// StepDown transfers leadership away from this member, and returns ErrNotLeader if it
// does not lead.
func (r *Requests) StepDown(ctx context.Context) error {
	return r.transfer(ctx, (*core.Core).StepDown)
}

// StepDownTo transfers leadership from this member to a voter that is up to date. It blocks until another member leads. It returns
// ErrNotLeader or ErrTransferRefused if nothing has changed, and ErrNoSuccessor if the voter did not become the leader for
// an election timeout. After ctx's error leadership may still move.
func (r *Requests) StepDownTo(ctx context.Context, to uint64) error {
	return r.transfer(ctx, func(c *core.Core, done chan<- error) { c.StepDownTo(to, done) })
}

func (r *Requests) transfer(ctx context.Context, begin func(*core.Core, chan<- error)) error {
	done := make(chan error, 1)
	r.post(event{run: func(c *core.Core) { begin(c, done) }})
	err := r.await(ctx, done)
	if err == nil || ctx.Err() == nil {
		return err
	}
	asked := make(chan bool, 1)
	r.post(event{run: func(c *core.Core) { asked <- c.AbandonTransfer(done) }})
	select {
	case asked := <-asked:
		if !asked {
			return ErrNoLeader
		}
	case <-r.lifetime.Done(): // done waits for this goroutine, if it is one of the member's
	}
	return err
}
