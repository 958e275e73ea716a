package conclave

import (
	"context"
	"fmt"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Check is a handle to a check of this member: something that the application
// finds out about itself and tells the group, so that sessions can depend on it.
// When a check becomes critical, or is deregistered, all sessions of this member
// that name it end at once, and what they held is released after their
// lock-delay. A holder that is cut off at that moment learns of it only at its
// own deadline; lock-delay and fences are for that.
//
// A check belongs to the member and outlives the process. All methods block until
// the group has agreed, and are safe for concurrent use. Their errors: ErrInvalid
// when the check was deregistered, ErrTooLarge with too many calls under way,
// ErrClosed, and ctx's with ErrUnavailable or ErrUnknown.
type Check struct {
	node *Node
	name string
}

// RegisterCheck registers a check of this member: 1 to 512 bytes of UTF-8 without
// NUL, and not "gossip", which is built in. It is passing then. With a ttl of 1 s
// to 24 h, it becomes critical by itself when Pass or Warn has not been called for
// so long; with 0 it stays as it is told. If the member has a check of that name,
// from an earlier process perhaps, it is taken over with the new ttl.
//
// It blocks until the group has agreed. Errors: ErrInvalid; ErrTooLarge with more
// than 256 checks; ErrClosed; and ctx's with ErrUnavailable or ErrUnknown.
func (n *Node) RegisterCheck(ctx context.Context, name string, ttl time.Duration) (*Check, error) {
	if err := validCheck(name, ttl); err != nil {
		return nil, fault("register check", name, err)
	}
	c := &Check{node: n, name: name}
	err := c.tell(ctx, &wire.Command{Op: &wire.Command_SetCheck{SetCheck: &wire.SetCheck{
		Name: name, Register: true, Ttl: int64(ttl), State: wire.CheckState_PASSING,
	}}})
	if err != nil {
		return nil, fault("register check", name, err)
	}
	return c, nil
}

func validCheck(name string, ttl time.Duration) error {
	low, high := duration(machine.MinTTL), duration(machine.MaxTTL)
	switch {
	case name == gossipName:
		return fmt.Errorf("%w: %q is built in; choose another name", ErrInvalid, name)
	case ttl != 0 && (ttl < low || ttl > high):
		return fmt.Errorf("%w: a ttl of %v; it has to be from %v to %v, or 0 for none", ErrInvalid, ttl, low, high)
	}
	return validName(name)
}

// Pass says that all is well. It begins the check's TTL anew.
func (c *Check) Pass(ctx context.Context) error {
	return fault("pass check", c.name, c.set(ctx, wire.CheckState_PASSING))
}

// Warn says that something is the matter, but nothing that sessions should end
// for. It begins the check's TTL anew.
func (c *Check) Warn(ctx context.Context) error {
	return fault("warn check", c.name, c.set(ctx, wire.CheckState_WARNING))
}

// Fail makes the check critical: the sessions that depend on it end at once. It
// stays critical until Pass or Warn is called.
func (c *Check) Fail(ctx context.Context) error {
	return fault("fail check", c.name, c.set(ctx, wire.CheckState_CRITICAL))
}

// Deregister makes the group forget the check. The sessions that depend on it
// end at once.
func (c *Check) Deregister(ctx context.Context) error {
	return fault("deregister check", c.name, c.tell(ctx, &wire.Command{Op: &wire.Command_DropCheck{
		DropCheck: &wire.DropCheck{Name: c.name},
	}}))
}

func (c *Check) set(ctx context.Context, state wire.CheckState) error {
	return c.tell(ctx, &wire.Command{Op: &wire.Command_SetCheck{SetCheck: &wire.SetCheck{Name: c.name, State: state}}})
}

func (c *Check) tell(ctx context.Context, cmd *wire.Command) error {
	if err := c.node.usable(); err != nil {
		return err
	}
	reply, err := c.node.exec(ctx, cmd)
	if err != nil {
		return err
	}
	return refusal(reply)
}
