package client

import (
	"context"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// creation is a standalone session being created for a caller, which may abandon it before
// there is an answer.
type creation struct {
	commands *commands
	id       wire.ID

	mu        sync.Mutex
	created   bool // guarded by mu
	doubtful  bool // guarded by mu; it may have been created before the registration expired
	abandoned bool // guarded by mu
}

// CreateSession creates a session that is bound to no process, in a group of that feature level.
// It blocks until the group has agreed. If ctx is done first, a session that may have been created is closed in the
// background.
func (c *commands) CreateSession(ctx context.Context, cfg LeaseConfig) (wire.ID, error) {
	n := &creation{commands: c, id: newID()}
	open := cfg.open(n.id)
	cmd := &wire.Command{Op: &wire.Command_CreateSession{CreateSession: &wire.CreateSession{Session: open}}}
	if err := c.life.Usable(); err != nil {
		return wire.ID{}, err
	}
	reply, err := c.execEach(ctx, cmd, func() func(answer) { return n.answered })
	if err == nil {
		err = refusal(reply)
	}
	if err == nil || n.abandon() {
		return n.id, nil
	}
	return wire.ID{}, err
}

// answered gets the outcome, on the goroutine that delivers outcomes.
func (n *creation) answered(a answer) {
	if a.fault() != nil && (!a.expired() || a.unsent) {
		return // refused, or not sent: there is no session
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.created, n.doubtful = !a.expired(), a.expired()
	if n.abandoned {
		n.discard()
	}
}

func (n *creation) discard() { n.commands.pursue(closeCommand(n.id, true), ignore) }

// abandon has a session that is created from now on closed. It reports whether it was created
// before.
func (n *creation) abandon() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.abandoned = !n.created; n.abandoned && n.doubtful {
		n.discard()
	}
	return n.created
}

// RenewSession renews a standalone session. It blocks until the group has agreed.
func (c *commands) RenewSession(ctx context.Context, id wire.ID) error {
	_, err := c.Exec(ctx, &wire.Command{Op: &wire.Command_RenewSession{RenewSession: &wire.RenewSession{Id: id[:]}}})
	if isCode(err, wire.Code_INVALID) && c.group.Level() < wire.LevelStandalone {
		// The group does not know the command, so it has no such session either.
		return &Fault{Kind: Refused, Reply: &wire.Reply{Code: wire.Code_SESSION_EXPIRED}}
	}
	return err
}
