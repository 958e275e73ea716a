package conclave

import (
	"context"
	"errors"
)

// ownOpening is the node's own session being opened. Many may wait for it.
type ownOpening struct {
	done chan struct{}
	err  error // valid once done is closed
}

// ownSession returns the node's own session, and opens it if there is none. It
// blocks until the group has done so.
func (n *Node) ownSession(ctx context.Context) (*Session, error) {
	for {
		if err := n.usable(); err != nil {
			return nil, err
		}
		n.mu.Lock()
		own, waited, first := n.own, n.opening, false
		if own == nil && waited == nil {
			waited, first = &ownOpening{done: make(chan struct{})}, true
			n.opening = waited
		}
		n.mu.Unlock()
		if first {
			n.openOwn(waited)
		}
		if own != nil {
			if own.alive() == nil {
				return own, nil
			}
			n.drop(own)
			continue
		}
		select {
		case <-waited.done:
			if waited.err != nil {
				return nil, waited.err
			}
		case <-ctx.Done():
			// Nothing is held by a session that nobody has seen yet.
			return nil, because(ErrUnavailable, ctx)
		}
	}
}

// openOwn asks the group for a session, for whoever waits and is still there
// when it comes.
func (n *Node) openOwn(waited *ownOpening) {
	o := n.newOpening(SessionConfig{Name: n.cfg.Name, TTL: n.cfg.SessionTTL})
	n.pursue(o.command(), func(a answer) {
		s, err := o.answered(a)
		n.mu.Lock()
		n.opening = nil
		if s != nil {
			n.own = s
		}
		n.mu.Unlock()
		// Whoever waits asks again if the session cannot be relied upon.
		if !errors.Is(err, errOpenAgain) {
			waited.err = err
		}
		close(waited.done)
	})
}
