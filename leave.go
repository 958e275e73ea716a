package conclave

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/wire"
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
		err = ours(n.member.MayRetire())
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
	err := n.member.Retire(ctx, n.tellLeft)
	n.renewal.stop()
	switch {
	case err == nil:
		n.member.Leave()
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

// tellLeft makes it a fact that this member has left.
func (n *Node) tellLeft(ctx context.Context) error {
	answered := make(chan answer, 1)
	n.pursue(&wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{Voters: n.member.Voters()}}}, func(a answer) { answered <- a })
	select {
	case a := <-answered:
		if a.err == nil && a.unregistered() {
			return n.knownToHaveLeft(ctx)
		}
		if a.reply.GetCode() == wire.Code_INVALID {
			// Every other voter leaves too, and waits for this one to agree.
			if err := n.member.SeeOff(ctx); err != nil {
				return err
			}
		}
		return a.fault()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// knownToHaveLeft looks why the group does not know this process: because it has
// left, as a command that came twice finds out, or because it was forgotten
// before.
func (n *Node) knownToHaveLeft(ctx context.Context) error {
	var left []uint64
	if err := n.member.Read(ctx, func(m cluster.Machine) { left = m.Left() }); err != nil {
		return err
	}
	if !slices.Contains(left, uint64(n.id)) {
		return fmt.Errorf("%w: the group had forgotten this process; open the member again, and leave", ErrUnavailable)
	}
	return nil
}
