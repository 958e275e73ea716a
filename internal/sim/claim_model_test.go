package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// claim is a request by a process of a session without a TTL. It ends what is in its way of the holds that earlier processes of
// the session had, when it is queued or refused, which clients do not see.
type claim struct {
	process wire.ID
	at      int64
	wants   wanted
	ofSet   bool
	run     runKey // of a request for a run; it conflicts with no lock
}

// wanted is the names that a request is for.
type wanted struct{ names, shared []string }

// conflicts reports whether the request wants a lock in a mode that excludes the other one.
func (w wanted) conflicts(name string, shared bool) bool {
	return slices.Contains(w.names, name) || !shared && slices.Contains(w.shared, name)
}

func (w wanted) equal(o wanted) bool {
	return slices.Equal(w.names, o.names) && slices.Equal(w.shared, o.shared)
}

// conflictsWith reports whether requests for both exclude each other.
func (w wanted) conflictsWith(o wanted) bool {
	excludes := func(shared bool) func(string) bool {
		return func(name string) bool { return w.conflicts(name, shared) }
	}
	return slices.ContainsFunc(o.names, excludes(false)) || slices.ContainsFunc(o.shared, excludes(true))
}

// wantedBy returns the names that a command asks for, if it may end what earlier processes had.
func wantedBy(c *wire.Command) (w wanted, ofSet bool) {
	switch l, set := c.GetLock(), c.GetLockSet(); {
	case set != nil:
		return wanted{set.Names, set.Shared}, true
	case l == nil, l.Election, l.Fence != 0, l.Share != 0:
	case l.Shared:
		w.shared = []string{l.Name}
	default:
		w.names = []string{l.Name}
	}
	return w, false
}

// markClaims notes the requests that end what earlier processes of their session had.
func (h *clientHistory) markClaims(op *operation) {
	w, ofSet := wantedBy(op.command)
	if op.session != nil && op.session.noTTL && len(w.names)+len(w.shared) > 0 {
		op.session.claims = append(op.session.claims, claim{process: op.incarnation, at: op.invokedAt, wants: w, ofSet: ofSet})
	}
	if c := op.command.GetRunJob(); c != nil && op.session.noTTL {
		op.session.claims = append(op.session.claims, claim{process: op.incarnation, at: op.invokedAt, run: runKey{c.Job, c.Key}})
	}
}

// sessionAttached: what earlier processes asked for in the session has been carried out by now, or never will be.
func (h *clientHistory) sessionAttached(by *operation) {
	for _, op := range h.operations {
		in := op.session
		if op.withdraws != nil {
			in = op.withdraws.session
		}
		if in == by.session && op.incarnation != by.incarnation && op.returnedAt == never {
			op.returnedAt, op.returnedTime = by.returnedAt, by.returnedTime
		}
	}
}

// ofKept returns the set that a grant of one of its names is of, if another process may claim it; else nil.
func (op *operation) ofKept() *wire.LockSet {
	if op == nil || op.of == nil || !op.session.noTTL {
		return nil
	}
	return op.of
}

// releasedExclusive reports whether a later process may have released an exclusive hold by the end of an operation: a set with
// any request that excludes it and does not claim it, and a lock alone with one for a set, as others claim it.
func (s lockState) releasedExclusive(op *operation) bool {
	_, name := op.names()
	held, of := wanted{names: []string{name}}, s.grant.ofKept()
	if of != nil {
		held = wanted{of.Names, of.Shared}
	}
	return slices.ContainsFunc(s.owner.claims, func(c claim) bool {
		later := c.process != s.process && c.at < op.returnedAt && c.at > s.grant.invokedAt
		return later && (of != nil || c.ofSet) && !(of != nil && c.ofSet && c.wants.equal(held)) && c.wants.conflictsWith(held)
	})
}

// releasedBy reports whether a later process may have released the shares by the end of an operation.
func (h holder) releasedBy(op *operation) bool {
	_, name := op.names()
	held := wanted{shared: []string{name}}
	if h.of != nil {
		held = wanted{h.of.Names, h.of.Shared}
	}
	return slices.ContainsFunc(h.owner.claims, func(c claim) bool {
		later := c.process != h.process && c.at < op.returnedAt
		return later && !(h.of != nil && c.ofSet && c.wants.equal(held)) && c.wants.conflictsWith(held)
	})
}

// isClaimedBy reports whether a request of a later process claims the share: one for the lock alone, or for the same set.
func (sh sharedHold) isClaimedBy(op *operation) bool {
	if sh.owner != op.session || sh.process == op.incarnation {
		return false
	}
	of := sh.grant.ofKept()
	if of == nil || op.of == nil {
		return of == nil && op.of == nil
	}
	return wanted{of.Names, of.Shared}.equal(wanted{op.of.Names, op.of.Shared})
}
