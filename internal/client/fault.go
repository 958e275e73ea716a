package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// Kind classifies a Fault.
type Kind int

const (
	// Refused: the state machine refused the command; Reply has the code.
	Refused Kind = iota + 1
	// Interrupted: the context was done. What was submitted, if anything, is
	// withdrawn; Cause is the context's error.
	Interrupted
	// Unavailable: the context was done before the command was sent: no effect.
	Unavailable
	// Unknown: the command was sent, and its outcome is unknown.
	Unknown
	// NotHeld: the handle holds nothing.
	NotHeld
	// Lost: the hold was lost with its lease.
	Lost
	// Expired: the lease has ended.
	Expired
	// Closed: the client was closed, or the group cannot be reached any more.
	Closed
	// Compacted: the feed no longer has the items that follow a position.
	Compacted
	// ReadOnly: this process only reads, so the command was not submitted: no effect.
	ReadOnly
	// OtherMode: the handle is one owner and holds the lock in the other mode: no effect.
	OtherMode
	// Endless: what the handle holds does not end in time: no effect.
	Endless
	// NoGroup: there is no such group: no effect.
	NoGroup
)

var kindNames = [...]string{"", "refused", "interrupted", "no quorum of the group is reachable", "outcome unknown",
	"not held", "lost", "session has ended", "closed", "compacted", "read-only", "held in the other mode", "held without an end in time", "no such group"}

// Fault is why an operation failed.
type Fault struct {
	Kind    Kind
	Overdue bool        // with Lost: the hold lasted for as long as it was to
	Detail  string      // what else is known, for people
	Reply   *wire.Reply // of a refusal; with Interrupted, the reply that queued the request, if any
	Cause   error       // a context's error, or the group's
}

func (f *Fault) Error() string {
	parts := []string{kindNames[f.Kind]}
	if f.Kind == Refused {
		parts = append(parts, f.Reply.GetCode().String())
		if detail := f.Reply.GetDetail(); detail != "" {
			parts = append(parts, detail)
		}
	}
	if f.Detail != "" {
		parts = append(parts, f.Detail)
	}
	if f.Cause != nil {
		parts = append(parts, f.Cause.Error())
	}
	return strings.Join(parts, ": ")
}

func (f *Fault) Unwrap() error { return f.Cause }

// IsKind reports whether err is a Fault of that kind.
func IsKind(err error, k Kind) bool {
	if err == nil {
		return false // without the allocation below
	}
	var f *Fault
	return errors.As(err, &f) && f.Kind == k
}

// isCode reports whether err is a refusal with one of these codes.
func isCode(err error, codes ...wire.Code) bool {
	if err == nil {
		return false // without the allocation below
	}
	var f *Fault
	if !errors.As(err, &f) || f.Kind != Refused {
		return false
	}
	for _, c := range codes {
		if f.Reply.GetCode() == c {
			return true
		}
	}
	return false
}

// refusal returns the Fault of a reply that is a refusal, or nil.
func refusal(r *wire.Reply) error {
	switch r.GetCode() {
	case wire.Code_OK, wire.Code_QUEUED:
		return nil
	}
	return &Fault{Kind: Refused, Reply: r}
}

func contextFault(k Kind, ctx context.Context) error {
	return &Fault{Kind: k, Cause: ContextError(ctx)}
}

// unavailable is the fault of a request that was not sent before ctx was done.
func (c *commands) unavailable(ctx context.Context) error {
	return &Fault{Kind: Unavailable, Detail: c.group.Unreachable(), Cause: ContextError(ctx)}
}

// ContextError is the error of a context that is done, with its cause if that says
// more; nil while ctx is not done.
func ContextError(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w (%w)", ctx.Err(), cause)
	}
	return ctx.Err()
}
