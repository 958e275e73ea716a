package conclave

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Leave takes this member out of the group for good, and closes the node. The
// group then decides by a majority of those that stay. All sessions of the member
// end, also those with NoTTL; what they held is released after their lock-delay,
// and its checks are forgotten. The directory is of no use afterwards: whoever
// opens it is told so, and the member's ID never comes back.
//
// It blocks until the group has taken the member out and has told it so, ctx ends,
// or a Close has waited for as long as it does; give ctx enough time for a change of
// leader. Then the node is closed, as by Close.
//
// Errors: ErrInvalid for the only voter of a group, which cannot leave it,
// ErrUnavailable if those who stay would not have a majority now, and ctx's error
// alone if it had ended before the call: nothing was done, and the node runs on.
// After all others it is closed. ErrClosed: it was, or was being closed.
// ErrUnknown, with ctx's error if that was the reason: the member may still belong
// to the group, and count in its majority, as does the last voter where all leave
// at once. Open it again with its directory: if it has left, Open stays until the
// group has taken it out, and says so with ErrInvalid; if not, it can Leave once
// more.
func (n *Node) Leave(ctx context.Context) error {
	err := cmp.Or(n.usable(), ended(ctx))
	if err == nil {
		err = ours(n.member.CheckLeave())
	}
	if err != nil {
		return fault("leave", n.cfg.Dir, err)
	}
	return fault("leave", n.cfg.Dir, n.leave(ctx))
}

var errHurried = errors.New("the node was closed meanwhile")

// leave is Leave without the question whether the others can do without.
func (n *Node) leave(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.hurried, func() { cancel(errHurried) })()
	err := ErrClosed // unless this call is the one that closes
	n.stop(func() { err = n.retire(ctx) })
	return err
}

func (n *Node) retire(ctx context.Context) error {
	n.endSessions(ErrClosed)
	err := n.member.Leave(ctx)
	n.renewal.stop()
	switch {
	case err == nil:
		n.member.AnnounceShutdown()
		return nil
	case ctx.Err() != nil:
		err = because(ErrUnknown, ctx)
	default:
		// The error alone would say that the node runs on.
		err = fmt.Errorf("%w: %v", ErrUnknown, ours(err))
	}
	_ = n.farewell(ctx) // what can be given back is
	return err
}
