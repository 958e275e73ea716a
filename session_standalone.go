package conclave

import (
	"context"
	"errors"
	"fmt"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// CreateSession creates a standalone session: one that is bound to no process, after Consul's
// sessions. A program that knows its ID, in any language and behind any member, renews it with
// RenewSession and locks keys under it with [KV.Acquire]. This process neither renews it nor is
// notified of its end, and does not end it by closing: that is what NewSession is for, and what
// a Go program wants.
//
// With a TTL the session ends when no renewal of it has committed for that long, or later; with
// NoTTL it ends by CloseSession or one of its checks only. The checks are those of this member,
// by default gossip, so the session ends when the member is declared dead, and when the member
// leaves. A nil cfg takes all defaults of SessionConfig. A holder has no deadline here: after a
// partition it must ask whether it still holds what it locked, and the lock-delay is the time
// that it has for that.
//
// It blocks until the group has agreed. If ctx is done first, a session that may have been
// created is closed in the background. Each renewal is an entry of the log. A group has at
// most 16,384 standalone sessions with a TTL.
//
// Errors: those of NewSession; ErrUpgradeRequired while a member of the group runs a
// build that does not know such sessions; and ErrInvalid from a [Client]'s group: the session
// belongs to a member.
func (g *Group) CreateSession(ctx context.Context, cfg *SessionConfig) (SessionID, error) {
	checked, err := cfg.withDefaults(true)
	var id wire.ID
	if err == nil {
		err = g.raiseLevel(ctx, wire.LevelStandalone)
	}
	if err == nil {
		err = dependable(ctx, g, checked.Checks)
	}
	if err == nil {
		id, err = g.client.CreateSession(ctx, leaseConfig(checked))
	}
	return SessionID(id), fault("create session", checked.Name, err)
}

// errNoMember is the error of what only a member's process does.
var errNoMember = fmt.Errorf("%w: only a Node and its groups can do this: a client has no member", ErrInvalid)

// raiseLevel raises the feature level for what only a member does; see Node.raiseLevel. A further group exists from LevelGroups on.
func (g *Group) raiseLevel(ctx context.Context, level uint32) error {
	if !g.isNode {
		return errNoMember
	}
	if n, ok := g.admin.(*Node); ok {
		return n.raiseLevel(ctx, level)
	}
	return nil
}

// raiseLevel raises the feature level to that of a call, if every member supports it. The leader
// does so as well, a second after the last of them has registered: a caller does not wait for that.
// If all support a higher one it is raised to that, so that what follows has its limits.
func (n *Node) raiseLevel(ctx context.Context, level uint32) error {
	if n.replica.Level() >= level {
		return nil
	}
	err := n.replica.RaiseLevel(ctx, wire.FeatureLevel, false)
	if errors.Is(err, cluster.ErrLevel) && level < wire.FeatureLevel {
		err = n.replica.RaiseLevel(ctx, level, false)
	}
	switch {
	case errors.Is(err, cluster.ErrLevel):
		return fmt.Errorf("%w: %w", ErrUpgradeRequired, err)
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, contextError(ctx))
	default:
		return err
	}
}

// RenewSession renews a standalone session, created by any member, for another TTL. For one
// with NoTTL it only reports that the session lives. It blocks until the group has agreed; a
// renewal that returned ErrUnknown may take effect.
//
// Errors: ErrSessionNotFound; ErrInvalid if the session is bound to a process, which renews it;
// ErrUpgradeRequired; ErrBusy; ErrClosed; and ctx's with ErrUnavailable or ErrUnknown.
func (g *Group) RenewSession(ctx context.Context, id SessionID) error {
	return fault("renew session", id.String(), notFound(g.client.RenewSession(ctx, wire.ID(id))))
}

// SessionInfo describes a session of the group. It is linearizable, unless [Stale] is given. It
// blocks like [KV.Get] and has its errors, and ErrSessionNotFound.
func (g *Group) SessionInfo(ctx context.Context, id SessionID, opts ...ReadOption) (SessionInfo, error) {
	view, err := client.Ask[*machine.SessionView](ctx, g.client, machine.SessionQuery{ID: wire.ID(id)}, readOptions(opts))
	if err == nil && view == nil {
		err = ErrSessionNotFound
	}
	if err != nil {
		return SessionInfo{}, fault("session info", id.String(), err)
	}
	return sessionInfo(*view), nil
}

func leaseConfig(c SessionConfig) client.LeaseConfig {
	return client.LeaseConfig{
		Name: c.Name, TTL: c.TTL, LockDelay: c.LockDelay,
		Behavior: wire.Behavior(c.Behavior), Checks: c.Checks,
	}
}
