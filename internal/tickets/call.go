package tickets

import (
	"errors"

	"github.com/conclave-go/conclave/internal/wire"
)

// Call is one command under way, of a member's process or of a client's. Its methods are called from one
// goroutine, in log order, and must not block.
type Call interface {
	// Deliver brings an outcome; if more is set, another one follows. Without a number in the ticket the command was not sent: see Answer.
	Deliver(t wire.Ticket, r *wire.Reply, more bool)
	// Cancelled answers a request to cancel the call. Unless sent, the command has no effect, and no
	// other method is called afterwards.
	Cancelled(sent bool)
	// Recheck returns the second outcome of a queued request after a snapshot has replaced the state, as
	// the outcome may be among the entries that it stands for; nil if it is still to come.
	Recheck(state wire.Rechecker, t wire.Ticket) *wire.Reply
	// Fail reports that no outcome will come.
	Fail(err error)
}

var (
	// ErrUnregistered: the registration of the incarnation that the call was made
	// under has expired.
	ErrUnregistered = errors.New("the registration of this process has expired")
	// ErrBusy: too much is under way; the call had no effect. See BusyError.
	ErrBusy = errors.New("busy")
	// ErrDeleted: the group has been deleted, and with it all that it had.
	ErrDeleted = errors.New("the group has been deleted")
)

// Answer answers a call that was not sent under an incarnation: by the group's refusal to register that, which it has waited for, or with nil that it is not
// registered.
func Answer(c Call, incarnation wire.ID, refusal *wire.Reply) {
	if refusal == nil {
		refusal = &wire.Reply{Code: wire.Code_UNKNOWN_INCARNATION, Detail: "the incarnation is not registered; register a new one"}
	}
	c.Deliver(wire.Ticket{Incarnation: incarnation}, refusal, false)
}

// UnsentError is why no outcome will come of a command that was not sent: it has no effect.
type UnsentError struct{ Cause error }

func (e *UnsentError) Error() string { return e.Cause.Error() }

func (e *UnsentError) Unwrap() error { return e.Cause }

// FailAll fails the calls of a table that has been drained.
func FailAll[C Call](sent, queued []C, err error) {
	for _, call := range sent {
		call.Fail(err)
	}
	for _, call := range queued {
		call.Fail(&UnsentError{err})
	}
}

// BusyError is an ErrBusy whose text names the limit that is exceeded.
type BusyError string

// ErrTooManyCalls: the commands of this process that have no outcome.
const ErrTooManyCalls BusyError = "too many pending calls: Limits.Calls and Limits.CallBytes bound them, the latter in all further groups together as well"

func (e BusyError) Error() string { return string(e) }

// Unwrap returns ErrBusy.
func (BusyError) Unwrap() error { return ErrBusy }
