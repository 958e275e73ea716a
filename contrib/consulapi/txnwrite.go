package consulapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/conclave-go/conclave"
)

// writeTxn executes a transaction that writes.
func (c *call) writeTxn(ops []keyOp) error {
	c.stale = false // what may be stale may be current
	ctx, cancel := c.patience()
	defer cancel()
	for range attempts {
		p := newPlan(c)
		failed, err := p.make(ctx, ops)
		if err != nil {
			return err
		}
		if failed != nil {
			return c.rollBack(c.others(ctx, ops, nil, failed))
		}
		if err := c.reserve(p.answerSize()); err != nil { // the write cannot be repeated for want of room
			return err
		}
		entries, err := c.group.KV().Txn(ctx, p.ops...)
		if err == nil {
			return c.succeed(p.resolve(entries))
		}
		var refused *conclave.TxnError
		if !errors.As(err, &refused) {
			return err
		}
		at := refused.Operation
		if p.guard[at] && (errors.Is(err, conclave.ErrCompareFailed) || errors.Is(err, conclave.ErrStaleSequencer)) {
			continue // another caller changed what was read; this had no effect
		}
		what := c.describe(ctx, &ops[p.of[at]], err)
		if what == "" {
			return err
		}
		failed = &txnError{p.of[at], what}
		return c.rollBack(c.others(ctx, ops, failed, failed))
	}
	return busy("the keys that the transaction reads changed during each attempt")
}

// answerSize bounds the size of the answer: what was read, and what else JSON has.
func (p *plan) answerSize() int {
	size := 1 << 10
	for _, r := range p.results {
		size += 6*maxKey + 1<<10 // a character of a key may take six bytes
		if r.op == read && r.value {
			size += 4 * (len(r.entry.Value)/3 + 1)
		}
	}
	if p.query.Has("pretty") {
		size += 1 << 10 * len(p.results)
	}
	return size
}

// make plans all operations.
func (p *plan) make(ctx context.Context, ops []keyOp) (*txnError, error) {
	confirmed := false
	for i := range ops {
		if !confirmed && ops[i].mayRead() {
			// The reads of the node's own state that follow are not older than this.
			if _, err := p.group.KV().Index(ctx); err != nil {
				return nil, err
			}
			confirmed = true
		}
		what, err := p.add(ctx, i, &ops[i])
		if err != nil {
			return nil, err
		}
		if what != "" {
			return &txnError{i, what}, nil
		}
	}
	return nil, nil
}

// mayRead reports whether the plan of an operation may depend on its key.
func (o *keyOp) mayRead() bool {
	switch o.verb {
	case "get", "get-or-empty", "check-session", "delete-cas":
		return true
	}
	return false
}

// resolve returns the results, with what the write has returned.
func (p *plan) resolve(entries []conclave.Entry) []txnResult {
	results := make([]txnResult, len(p.results))
	for i, r := range p.results {
		e := r.entry
		if r.op != read {
			e = entries[r.op]
		}
		if r.value {
			results[i] = txnResult{pairOf(e)}
		} else {
			results[i] = bare(e)
		}
	}
	return results
}

// describe returns why an operation was refused, in Consul's words; "": not because of the
// state of a key.
func (c *call) describe(ctx context.Context, o *keyOp, err error) string {
	what := o.refused(err)
	if what != "" || errors.Is(err, conclave.ErrUnknown) || !errors.Is(err, conclave.ErrCompareFailed) {
		return what
	}
	e, err := c.group.KV().Get(ctx, o.key, conclave.Stale()) // only for the text
	if what := o.check(e, err == nil); what != "" {
		return what
	}
	return fmt.Sprintf("%s of key %q failed", o.verb, o.key)
}

// refused returns what an error says about the state of the key of a write, in Consul's words; "": nothing.
func (o *keyOp) refused(err error) string {
	switch {
	case errors.Is(err, conclave.ErrUnknown):
		return ""
	case errors.Is(err, conclave.ErrLocked):
		return fmt.Sprintf("failed to lock key %q, lock is already held", o.key)
	case errors.Is(err, conclave.ErrLockDelay):
		return fmt.Sprintf("failed to lock key %q due to lock delay", o.key)
	case errors.Is(err, conclave.ErrNotHeld), o.verb == "unlock" && errors.Is(err, conclave.ErrSessionExpired):
		return fmt.Sprintf("failed to unlock key %q, lock isn't held, or is held by another session", o.key)
	case errors.Is(err, conclave.ErrSessionExpired):
		return fmt.Sprintf("invalid session %q", o.session)
	case o.verb == "cas" && errors.Is(err, conclave.ErrCompareFailed):
		return fmt.Sprintf("failed to set key %q, index is stale", o.key)
	case o.verb == "delete-cas" && errors.Is(err, conclave.ErrCompareFailed):
		return fmt.Sprintf("failed to delete key %q, index is stale", o.key)
	}
	return ""
}
