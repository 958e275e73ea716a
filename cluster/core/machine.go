package core

import (
	"errors"

	"github.com/conclave-go/conclave/internal/wire"
)

// Machine is the replicated state machine. Only the driver's goroutine calls it.
type Machine interface {
	wire.Rechecker

	// Apply applies the entry at index. Empty data is raft's own first entry
	// of a term.
	Apply(index, term uint64, data []byte) wire.Result
	// Now is the largest group time applied.
	Now() int64
	// NextDeadline is the earliest group time at which an empty batch would
	// change the state.
	NextDeadline() (at int64, ok bool)
	// Removed returns the members that are removed, and that Raft's configuration
	// must therefore not contain.
	Removed() []uint64
	// Liveness returns what the group holds of each member's process.
	Liveness() []wire.MemberLiveness
}

// Call is a pending command of this process. Its methods run on the driver's
// goroutine, in log order, and must not block.
type Call interface {
	// Deliver delivers an outcome; with more set another one follows.
	Deliver(t wire.Ticket, r *wire.Reply, more bool)
	// Cancelled answers Core.Cancel. Unless sent, the command has no effect, and no
	// other method is called any more.
	Cancelled(sent bool)
	// Recheck returns the outcome of a call that awaits a second one, after a
	// snapshot has replaced the machine and may have skipped it. nil: it is still to
	// come.
	Recheck(state wire.Rechecker, t wire.Ticket) *wire.Reply
	// Fail reports that no outcome will come.
	Fail(err error)
}

var (
	// ErrUnregistered: the registration of the incarnation that the call was made
	// under has expired.
	ErrUnregistered = errors.New("the registration of this process has expired")
	// ErrBusy: too many calls are pending; the call had no effect.
	ErrBusy = errors.New("too many pending calls")
	// ErrCorrupt: this member's state differs from the group's.
	ErrCorrupt = errors.New("state differs from the group's")
)
