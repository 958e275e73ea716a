package core

import (
	"errors"

	"github.com/conclave-go/conclave/internal/wire"
)

// Machine is the replicated state machine. Only the driver's goroutine calls it.
type Machine interface {
	// Apply applies the entry at index. Empty data is raft's own first entry
	// of a term.
	Apply(index, term uint64, data []byte) wire.Result
	// Now is the largest group time applied.
	Now() int64
	// NextDeadline is the earliest group time at which an empty batch would
	// change the state.
	NextDeadline() (at int64, ok bool)
	// Left are the members that have left the group for good, and are to be
	// taken out of its membership.
	Left() []uint64
}

// Call is one command on its way. The methods run on the driver's goroutine, in
// log order, and must not block.
type Call interface {
	// Deliver brings an outcome; with more set another one follows.
	Deliver(t wire.Ticket, r *wire.Reply, more bool)
	// Cancelled answers Core.Cancel. When the command was never handed on,
	// it has no effect and the call hears nothing more.
	Cancelled(sent bool)
	// Recheck asks for the outcome of a call that awaits a second one, after
	// a snapshot has replaced the machine and the outcome may be among what
	// was skipped. nil: it is still to come.
	Recheck(m Machine, t wire.Ticket) *wire.Reply
	// Fail says that no outcome will come.
	Fail(err error)
}

var (
	// ErrForgotten is what calls get when the group has forgotten the
	// incarnation that they were made under.
	ErrForgotten = errors.New("the group has forgotten this process")
	// ErrBusy says that too many calls are under way; nothing was queued.
	ErrBusy = errors.New("too many calls under way")
	// ErrCorrupt says that this member's state cannot be trusted.
	ErrCorrupt = errors.New("state differs from the group's")
)
