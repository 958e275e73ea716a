package consulapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/conclave-go/conclave"
)

// trial goes through the operations of a transaction that has failed, to find every reason as Consul does:
// an operation sees what those before it would have changed, and one that fails changes nothing. It reads
// the keys one after another, so that only what the group has refused is certain.
type trial struct {
	reader
	changed map[string]conclave.Entry // what the operations would have written; without a key: deleted
	trees   []string                  // prefixes of keys that they would have deleted before that
}

// unknowable is the index of what the transaction itself writes: no client can expect it.
const unknowable = math.MaxUint64

// others returns the failure that is known, and those of the other operations.
func (c *call) others(ctx context.Context, ops []keyOp, refused, known *txnError) []*txnError {
	// The reads of the node's own state are not older than this.
	if _, err := c.group.KV().Index(ctx); err != nil {
		return []*txnError{known}
	}
	failed, err := c.failures(ctx, ops, refused)
	if err != nil || len(failed) == 0 {
		return []*txnError{known}
	}
	return failed
}

// failures returns why the operations fail. Refused is what the group has refused the transaction for,
// after it had done the operations before; nil: it was not asked.
func (c *call) failures(ctx context.Context, ops []keyOp, refused *txnError) ([]*txnError, error) {
	t := &trial{
		reader:  reader{call: c, known: make(map[string]conclave.Entry)},
		changed: make(map[string]conclave.Entry),
	}
	var failed []*txnError
	for i := range ops {
		if refused != nil && i == refused.OpIndex {
			failed = append(failed, refused)
			continue
		}
		what, err := t.try(ctx, &ops[i])
		if err != nil {
			return nil, err
		}
		if what != "" && (refused == nil || i > refused.OpIndex) {
			failed = append(failed, &txnError{i, what})
		}
	}
	return failed, nil
}

// try returns why an operation fails; "": it does not, and is done.
func (t *trial) try(ctx context.Context, o *keyOp) (what string, err error) {
	if o.ofTree() {
		if o.verb == "delete-tree" {
			maps.DeleteFunc(t.changed, func(key string, _ conclave.Entry) bool { return strings.HasPrefix(key, o.key) })
			t.trees = append(t.trees, o.key)
		}
		return "", nil
	}
	e, exists, err := t.get(ctx, o.key)
	if err != nil {
		return "", err
	}
	if o.verb == "check-index" && e.ModifyIndex == unknowable {
		return fmt.Sprintf("failed index check for key %q, which the transaction changes", o.key), nil
	}
	if what := o.check(e, exists); what != "" || !o.isWrite() {
		return what, nil
	}
	if o.verb == "delete" || o.verb == "delete-cas" {
		// As in Consul, a key that does not exist is as expected.
		if o.verb == "delete-cas" && exists && e.ModifyIndex != o.index {
			return o.refused(conclave.ErrCompareFailed), nil
		}
		t.changed[o.key] = conclave.Entry{}
		return "", nil
	}
	if _, err := o.write(); err != nil {
		return err.Error(), nil
	}
	if o.verb == "cas" && e.ModifyIndex != o.index {
		return o.refused(conclave.ErrCompareFailed), nil
	}
	holder, refusal, err := t.holder(ctx, o, e.Session)
	if err != nil || refusal != nil {
		return o.refused(refusal), err
	}
	written := conclave.Entry{Key: o.key, Value: o.value, Flags: o.flags, Session: holder, ModifyIndex: unknowable}
	if exists && holder == e.Session && o.flags == e.Flags && bytes.Equal(o.value, e.Value) {
		written.ModifyIndex = e.ModifyIndex // as in Consul, a write that changes nothing moves no index
	}
	t.changed[o.key] = written
	return "", nil
}

// holder returns the session that holds a key after a write, or the error with which the group would refuse it.
func (t *trial) holder(ctx context.Context, o *keyOp, now conclave.SessionID) (after conclave.SessionID, refusal, err error) {
	if o.verb != "lock" && o.verb != "unlock" {
		return now, nil, nil
	}
	id, err := conclave.ParseSessionID(o.session)
	switch {
	case err != nil:
		return now, nil, err
	case o.verb == "unlock" && now != id:
		return now, conclave.ErrNotHeld, nil
	case o.verb == "unlock":
		return conclave.SessionID{}, nil, nil
	}
	_, err = t.group.SessionInfo(ctx, id, conclave.Stale())
	switch {
	case errors.Is(err, conclave.ErrSessionNotFound): // also of a key that is held
		return now, conclave.ErrSessionExpired, nil
	case err == nil && now != id && now != (conclave.SessionID{}):
		return now, conclave.ErrLocked, nil
	}
	return id, nil, err
}

// get returns a key as the operations so far would have left it.
func (t *trial) get(ctx context.Context, key string) (e conclave.Entry, exists bool, err error) {
	if e, ok := t.changed[key]; ok {
		return e, e.Key != "", nil
	}
	for _, prefix := range t.trees {
		if strings.HasPrefix(key, prefix) {
			return conclave.Entry{}, false, nil
		}
	}
	return t.reader.get(ctx, key)
}
