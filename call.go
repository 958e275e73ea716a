package conclave

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/wire"
)

// call is a command whose one outcome is wanted. on runs on the node's loop,
// once, and must not block.
type call struct {
	node      *Node
	on        func(answer)
	cancelled func(sent bool) // nil: never cancelled
}

type answer struct {
	reply       *wire.Reply
	incarnation wire.ID // that the command was sent under; with reply
	err         error   // no outcome will come
}

// fault is why the command was refused, or has no outcome.
func (a answer) fault() error {
	if a.err != nil {
		return ours(a.err)
	}
	return refusal(a.reply)
}

// unregistered reports that the group had forgotten this process when the
// command came. It had no effect then; but if it came before that once, and its
// outcome was lost, it had one. Whatever is sent next goes out under a new
// registration.
func (a answer) unregistered() bool { return a.reply.GetCode() == wire.Code_UNKNOWN_INCARNATION }

// forgotten reports that the group had forgotten this process, before or after
// the command came.
func (a answer) forgotten() bool {
	return errors.Is(a.err, cluster.ErrUnregistered) || a.err == nil && a.unregistered()
}

func (c *call) Deliver(t wire.Ticket, r *wire.Reply, _ bool) {
	if r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
		c.node.forgotten(t.Incarnation)
	}
	c.on(answer{reply: r, incarnation: t.Incarnation})
}

func (c *call) Fail(err error)                                   { c.on(answer{err: err}) }
func (c *call) Cancelled(sent bool)                              { c.cancelled(sent) }
func (c *call) Recheck(cluster.Machine, wire.Ticket) *wire.Reply { return nil }

// pursue sends a command and sees to it until its outcome is known, however
// long that takes and whoever still waits. It is for what must not be refused:
// renewals, releases and withdrawals.
func (n *Node) pursue(cmd *wire.Command, on func(answer)) {
	n.member.Submit(encode(cmd), &call{node: n, on: on}, true)
}

// forget is for commands whose outcome nobody needs.
func forget(answer) {}

// exec sends a command and waits for its outcome. When ctx ends before anybody
// could be handed the command, it has no effect: ErrUnavailable. When it ends
// later, it may have one: ErrUnknown.
//
// Where the group has forgotten this process, the command is sent again under a
// new registration. Had it been applied before, that would have been heard of
// first, as both come through the log; and what comes later under the old
// registration is refused. Only a snapshot may have skipped an outcome: ErrUnknown.
func (n *Node) exec(ctx context.Context, cmd *wire.Command) (*wire.Reply, error) {
	for {
		restores := n.restores.Load()
		reply, err := n.send(ctx, cmd, forget)
		refused := err == nil && (answer{reply: reply}).unregistered()
		if !refused && !errors.Is(err, cluster.ErrUnregistered) {
			return reply, err
		}
		if err := n.usable(); err != nil {
			return nil, err // it was this process that took leave
		}
		if n.restores.Load() != restores {
			return nil, fmt.Errorf("%w: the group had forgotten this process meanwhile", ErrUnknown)
		}
	}
}

// send is exec without a second attempt. note gets the answer first, on the
// node's loop and whether or not somebody still waits, unless ctx ends before
// the command was sent.
func (n *Node) send(ctx context.Context, cmd *wire.Command, note func(answer)) (*wire.Reply, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	answered := make(chan answer, 1)
	cancelled := make(chan bool, 1)
	c := &call{
		node:      n,
		on:        func(a answer) { note(a); answered <- a },
		cancelled: func(sent bool) { cancelled <- sent },
	}
	n.member.Submit(encode(cmd), c, false)
	select {
	case a := <-answered:
		return a.reply, ours(a.err)
	case <-ctx.Done():
	}
	n.member.Cancel(c)
	select {
	case a := <-answered: // it was faster
		return a.reply, ours(a.err)
	case sent := <-cancelled:
		if !sent {
			return nil, because(ErrUnavailable, ctx)
		}
	}
	select {
	case a := <-answered:
		return a.reply, ours(a.err)
	default:
		return nil, because(ErrUnknown, ctx)
	}
}

func encode(cmd *wire.Command) []byte {
	b, err := proto.Marshal(cmd)
	if err != nil {
		// Only invalid UTF-8 fails, and names are checked. The machine
		// refuses an empty command with a message.
		return nil
	}
	return b
}

// forgotten starts anew under another incarnation, when the group has
// forgotten the one given: this process was out of touch for so long that no
// session is bound to it any more.
func (n *Node) forgotten(incarnation wire.ID) {
	if n.usable() != nil {
		return // it was this process that took leave
	}
	n.part(incarnation)
	n.member.Reincarnate(incarnation, func() ([]byte, cluster.Call) {
		n.attempt++
		return encode(n.registration()), &call{node: n, on: func(a answer) {
			if err := a.fault(); err != nil {
				n.log.Warn("the group does not take this process back", "error", err)
			}
		}}
	})
}

func (n *Node) registration() *wire.Command {
	return &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{
		Member:  uint64(n.id),
		Boot:    n.boot,
		Attempt: n.attempt,
		Ttl:     int64(n.memory),
	}}}
}

// incarnationTTL is how long the group remembers a process that is silent and
// has no session with a TTL.
const incarnationTTL = time.Minute

func duration(ns int64) time.Duration { return time.Duration(ns) }

var _ cluster.Call = (*call)(nil)
