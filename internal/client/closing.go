package client

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// closing is the Close of a lease under way.
type closing struct {
	begun    atomic.Bool
	answered chan struct{} // closed when the group has answered
	err      error         // valid once answered is closed
}

// Close ends the lease: first here, then in the group, which releases everything
// without a lock-delay. It blocks until the group has done so; if ctx is done first,
// the close is pursued in the background (Unknown). It returns nil for a lease that
// had ended otherwise, and why it ended if its session lives on in the group.
func (l *Lease) Close(ctx context.Context) error {
	l.end(&Fault{Kind: Expired, Detail: closedHere}, released)
	if why := l.Err(); !hasDetail(why, closedHere) {
		if hasDetail(why, unboundHere) || l.outlives(why) && IsKind(why, Closed) {
			return why
		}
		return nil
	}
	if l.closing.begun.CompareAndSwap(false, true) {
		l.closeInGroup()
	}
	select {
	case <-l.closing.answered:
		return l.closing.err
	case <-ctx.Done():
		return &Fault{Kind: Unknown, Detail: "the close is pursued in the background", Cause: ContextError(ctx)}
	}
}

// outlives reports whether the session lives on in the group after the end of the lease for that reason, which is none of its own: without
// TTL, unless the group has been deleted.
func (l *Lease) outlives(why error) bool {
	return l.ttl == NoTTL && !errors.Is(why, tickets.ErrDeleted)
}

// closeInGroup closes the session in the group. For a session without TTL it is
// repeated if the registration of this process expired meanwhile: the session was
// unbound then, and did not end.
func (l *Lease) closeInGroup() {
	l.client.pursue(closeCommand(l.id, true), func(a answer) {
		if l.ttl == NoTTL && a.expired() && l.client.Usable() == nil {
			l.closeInGroup()
			return
		}
		err := a.fault()
		switch {
		case isCode(err, wire.Code_LOCKED, wire.Code_SESSION_BOUND): // another process has attached it meanwhile
			l.closing.err = unbound()
		case isCode(err, wire.Code_SESSION_EXPIRED), a.expired():
		case a.err != nil:
			l.closing.err = l.client.ended(err)
		default:
			l.closing.err = err
		}
		close(l.closing.answered)
	})
}

// CloseSession ends any session of the group, by force.
func (c *commands) CloseSession(ctx context.Context, id wire.ID) error {
	_, err := c.Exec(ctx, closeCommand(id, false))
	return err
}

func closeCommand(id wire.ID, graceful bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: id[:], Graceful: graceful}}}
}

func hasDetail(err error, detail string) bool {
	var f *Fault
	return errors.As(err, &f) && f.Detail == detail
}
