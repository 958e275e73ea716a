package consulapi

import (
	"context"
	"strings"

	"github.com/conclave-go/conclave"
)

// plan is a transaction that writes, as one write of the group.
//
// A key that the transaction reads before it writes to it is read first. An operation that
// expects the key as it was read takes the place of the read, as a guard. So the
// transaction is executed only if what was read is still so. What it
// reads after it has written it is known from the write's own result.
type plan struct {
	reader
	ops     []conclave.Op
	of      []int          // for each of ops, the transaction's operation that it is for
	guard   []bool         // for each of ops, whether it only repeats what was read
	results []planned      // of the transaction
	touched map[string]int // for each key, which of ops wrote it last; deleted: it was deleted
	trees   []string       // prefixes of keys that were deleted
}

// planned is a result of a transaction: that of an operation, or what was read.
type planned struct {
	op    int // of ops; read: none
	entry conclave.Entry
	value bool // is kept
}

const (
	deleted = -1
	read    = -1
)

func newPlan(c *call) *plan {
	return &plan{
		reader:  reader{call: c, known: make(map[string]conclave.Entry)},
		touched: make(map[string]int),
	}
}

// state reports which of ops wrote the key last, if one has written or deleted it.
func (p *plan) state(key string) (op int, touched bool) {
	if op, ok := p.touched[key]; ok {
		return op, true
	}
	for _, prefix := range p.trees {
		if strings.HasPrefix(key, prefix) {
			return deleted, true
		}
	}
	return 0, false
}

func (p *plan) push(i int, op conclave.Op, guard bool) int {
	p.ops, p.of, p.guard = append(p.ops, op), append(p.of, i), append(p.guard, guard)
	return len(p.ops) - 1
}

// add plans the operation at i. What is why the transaction fails; "": nothing yet.
func (p *plan) add(ctx context.Context, i int, o *keyOp) (what string, err error) {
	switch o.verb {
	case "set", "cas", "lock", "unlock":
		op, err := o.write()
		if err != nil {
			return err.Error(), nil
		}
		at := p.push(i, op, false)
		p.touched[o.key] = at
		p.results = append(p.results, planned{op: at})
	case "delete":
		p.push(i, conclave.OpDelete(o.key), false)
		p.touched[o.key] = deleted
	case "delete-tree":
		p.push(i, conclave.OpDeletePrefix(o.key), false)
		p.trees = append(p.trees, o.key)
		for key := range p.touched {
			if strings.HasPrefix(key, o.key) {
				p.touched[key] = deleted
			}
		}
	case "delete-cas":
		return "", p.deleteIf(ctx, i, o)
	case "check-index":
		if o.index == 0 { // of a key that does not exist, in conclave
			return o.check(conclave.Entry{}, false), nil
		}
		p.results = append(p.results, planned{op: p.push(i, conclave.OpExpect(o.key, o.index), false)})
	case "check-not-exists":
		p.push(i, conclave.OpExpect(o.key, 0), false)
	case "check-session":
		return p.checkSession(ctx, i, o)
	case "get", "get-or-empty":
		return p.read(ctx, i, o)
	case "get-tree":
		return "", invalid("operation %d: get-tree together with writes is not supported: it cannot be made atomic", i)
	}
	return "", nil
}

// write makes the operation that writes one key.
func (o *keyOp) write() (conclave.Op, error) {
	flags := conclave.WithFlags(o.flags)
	switch o.verb {
	case "set":
		return conclave.OpPut(o.key, o.value, flags), nil
	case "cas":
		return conclave.OpCompareAndSwap(o.key, o.index, o.value, flags), nil
	}
	if o.session == "" {
		return conclave.Op{}, invalid("missing session")
	}
	id, err := conclave.ParseSessionID(o.session)
	switch {
	case err != nil:
		return conclave.Op{}, invalidSession(o.session)
	case o.verb == "unlock":
		return conclave.OpRelease(o.key, o.value, id, flags), nil
	}
	return conclave.OpAcquire(o.key, o.value, id, flags), nil
}

// deleteIf plans a delete-cas, which succeeds, as in Consul, if the key does not exist.
func (p *plan) deleteIf(ctx context.Context, i int, o *keyOp) error {
	op, touched := p.state(o.key)
	exists, isGuard := op != deleted, false
	if !touched {
		var err error
		if _, exists, err = p.get(ctx, o.key); err != nil {
			return err
		}
		isGuard = !exists
	}
	switch {
	case !exists:
		p.push(i, conclave.OpExpect(o.key, 0), isGuard)
	case o.index == 0: // in conclave, of a key that does not exist
		p.push(i, conclave.OpExpect(o.key, 0), false)
	default:
		p.push(i, conclave.OpCompareAndDelete(o.key, o.index), false)
		p.touched[o.key] = deleted
	}
	return nil
}

func (p *plan) checkSession(ctx context.Context, i int, o *keyOp) (what string, err error) {
	if _, touched := p.state(o.key); touched {
		return "", invalid("operation %d: a check-session of a key that the transaction has written before is not supported: put it first", i)
	}
	e, exists, err := p.get(ctx, o.key)
	if err != nil {
		return "", err
	}
	if what := o.check(e, exists); what != "" {
		return what, nil
	}
	op := conclave.OpExpect(o.key, e.ModifyIndex)
	if o.session != "" {
		op = conclave.OpCheckSequencer(e.Sequencer()) // does not mind other values
	}
	p.results = append(p.results, planned{op: p.push(i, op, true)})
	return "", nil
}

func (p *plan) read(ctx context.Context, i int, o *keyOp) (what string, err error) {
	op, touched := p.state(o.key)
	switch {
	case touched && op == deleted && o.verb == "get":
		return o.check(conclave.Entry{}, false), nil
	case touched && op == deleted:
		p.results = append(p.results, planned{op: read, entry: conclave.Entry{Key: o.key}})
		return "", nil
	case touched:
		p.results = append(p.results, planned{op: op, value: true})
		return "", nil
	}
	e, exists, err := p.get(ctx, o.key)
	if err != nil {
		return "", err
	}
	if what := o.check(e, exists); what != "" {
		return what, nil
	}
	p.push(i, conclave.OpExpect(o.key, e.ModifyIndex), true)
	e.Key = o.key
	p.results = append(p.results, planned{op: read, entry: e, value: true})
	return "", nil
}
