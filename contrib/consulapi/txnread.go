package consulapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/conclave-go/conclave"
)

// attempts bounds how often a transaction is tried whose keys are changed meanwhile. What is
// in between takes microseconds, or one write.
const attempts = 16

// readTxn executes a transaction that only reads.
//
// All its reads are of the node's own state, between two reads of the index of the last
// change of any key: if these are equal, all were of one point in time. The first one
// is linearizable, unless ?stale is set, and so are then all.
func (c *call) readTxn(ops []keyOp) error {
	ctx, cancel := c.patience()
	defer cancel()
	if slices.ContainsFunc(ops, func(o keyOp) bool { return o.verb == "get-tree" }) {
		if err := c.gathersMuch(ctx); err != nil {
			return err
		}
	}
	for range attempts {
		index, err := c.lastIndex(ctx, c.stale)
		if err != nil {
			return err
		}
		r := reader{call: c, known: make(map[string]conclave.Entry)}
		results, failed, err := r.all(ctx, ops)
		if err != nil {
			return err
		}
		after, err := c.lastIndex(ctx, true)
		if err != nil {
			return err
		}
		if after != index {
			continue
		}
		c.meta(index)
		c.w.Header().Del("X-Consul-Index") // a transaction is no blocking query
		if failed != nil {
			return c.rollBack(failed)
		}
		return c.succeed(results)
	}
	return busy("the keys changed during each attempt to read them at one point in time")
}

// reader reads keys of the node's own state, each once.
type reader struct {
	*call
	known map[string]conclave.Entry // one without a key is of a key that does not exist
	bytes int                       // of the values that were read
}

func (r *reader) get(ctx context.Context, key string) (e conclave.Entry, exists bool, err error) {
	e, ok := r.known[key]
	if !ok {
		e, err = r.group.KV().Get(ctx, key, conclave.Stale())
		if err != nil && !errors.Is(err, conclave.ErrKeyNotFound) {
			return e, false, err
		}
		if err := r.count(ctx, e); err != nil {
			return e, false, err
		}
		r.known[key] = e
	}
	return e, e.Key != "", nil
}

// count refuses more values than an answer may have. Many bytes are gathered in one of the places of
// listings.
func (r *reader) count(ctx context.Context, e conclave.Entry) error {
	if r.bytes += len(e.Key) + len(e.Value); r.bytes > r.opts.MaxAnswer {
		return refuse(http.StatusRequestEntityTooLarge, "the answer has more than %d bytes: read less at a time", r.opts.MaxAnswer)
	}
	if r.bytes > smallAnswer {
		return r.gathersMuch(ctx)
	}
	return nil
}

// all reads the keys of all operations, and returns each that fails.
func (r *reader) all(ctx context.Context, ops []keyOp) (results []txnResult, failed []*txnError, err error) {
	for i := range ops {
		var what string
		switch {
		case ops[i].verb != "get-tree":
			results, what, err = r.one(ctx, &ops[i], results)
		case failed == nil: // otherwise there is no answer for it, and it does not fail
			results, err = r.tree(ctx, ops[i].key, results)
		}
		switch {
		case err != nil && failed != nil: // of an answer that is too large, say: what has failed is known
			return nil, failed, nil
		case err != nil:
			return nil, nil, err
		}
		if what != "" {
			failed = append(failed, &txnError{i, what})
		}
	}
	return results, failed, nil
}

func (r *reader) tree(ctx context.Context, prefix string, results []txnResult) ([]txnResult, error) {
	entries, err := r.group.KV().List(ctx, prefix, conclave.Stale())
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := r.count(ctx, e); err != nil {
			return nil, err
		}
		results = append(results, txnResult{pairOf(e)})
	}
	return results, nil
}

// one reads or checks one key. What is why the transaction fails; "": it does not.
func (r *reader) one(ctx context.Context, o *keyOp, results []txnResult) (_ []txnResult, what string, err error) {
	e, exists, err := r.get(ctx, o.key)
	if err != nil {
		return nil, "", err
	}
	switch what = o.check(e, exists); {
	case what != "":
		return results, what, nil
	case o.verb == "check-not-exists":
		return results, "", nil
	case o.verb == "get":
		return append(results, txnResult{pairOf(e)}), "", nil
	case o.verb == "get-or-empty":
		e.Key = o.key
		return append(results, txnResult{pairOf(e)}), "", nil
	}
	return append(results, bare(e)), "", nil
}

// check returns why an operation that reads fails on a key; "": it does not.
func (o *keyOp) check(e conclave.Entry, exists bool) string {
	switch session := pairOf(e).Session; {
	case o.verb == "get" && !exists:
		return fmt.Sprintf("key %q doesn't exist", o.key)
	case o.verb == "check-not-exists" && exists:
		return fmt.Sprintf("key %q exists", o.key)
	case o.verb == "check-index" && !exists:
		return fmt.Sprintf("failed to check index, key %q doesn't exist", o.key)
	case o.verb == "check-index" && e.ModifyIndex != o.index:
		return fmt.Sprintf("failed index check for key %q, current modify index %d != %d", o.key, e.ModifyIndex, o.index)
	case o.verb == "check-session" && !exists:
		return fmt.Sprintf("failed to check session, key %q doesn't exist", o.key)
	case o.verb == "check-session" && session != o.session:
		return fmt.Sprintf("failed session check for key %q, current session %q != %q", o.key, session, shorten(o.session))
	}
	return ""
}
