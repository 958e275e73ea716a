package conclave

import (
	"context"
	"errors"
	"fmt"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/wire"
)

// Leave takes this member out of the group for good, and closes the node. The
// group then decides by a majority of those that stay. All sessions of the member
// end, also those with NoTTL; what they held is released after their lock-delay,
// and its checks are forgotten. The directory is of no use afterwards: whoever
// opens it is told so, and the member's ID never comes back.
//
// It blocks until the group has taken the member out, or ctx ends; give ctx
// enough time for a change of leader. Whatever it returns, the node is closed
// then, as by Close, but for the first of these errors.
//
// Errors: ErrInvalid for the only voter of a group, which cannot leave it: nothing
// was done, and the node runs on. ErrClosed: the node is closed or being closed.
// ErrUnavailable or ErrUnknown, with ctx's error: the member may still belong to
// the group. Open it again with its directory: it is told if it has left, and
// otherwise can Leave once more.
func (n *Node) Leave(ctx context.Context) error {
	err := n.usable()
	if err == nil && n.member.OnlyVoter() {
		err = fmt.Errorf("%w: %w, and cannot leave it", ErrInvalid, cluster.ErrOnlyVoter)
	}
	if err != nil {
		return fault("leave", n.cfg.Dir, err)
	}
	err = ErrClosed // unless this call is the one that closes
	n.stop(func() { err = n.retire(ctx) })
	return fault("leave", n.cfg.Dir, err)
}

func (n *Node) retire(ctx context.Context) error {
	n.endSessions(ErrClosed)
	err := n.member.Retire(ctx, n.tellLeft)
	n.renewal.stop()
	n.member.Leave()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(err, ErrUnavailable):
		return because(ErrUnknown, ctx)
	}
	return ours(err)
}

// tellLeft makes it a fact that this member has left. A group that does not know
// this process when the command comes may have heard it before; the membership
// will show.
func (n *Node) tellLeft(ctx context.Context) error {
	reply, err := n.send(ctx, &wire.Command{Op: &wire.Command_Leave{Leave: &wire.Leave{}}}, forget)
	if err != nil || (answer{reply: reply}).unregistered() {
		return err
	}
	return refusal(reply)
}
