package consulapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/conclave-go/conclave"
)

const (
	maxOps = 128     // conclave's limit, and Consul's
	maxTxn = 2 << 20 // bytes of JSON, which hold more than what one write may have
)

// keyOp is one operation of a transaction.
type keyOp struct {
	verb, key, session string
	value              []byte
	flags, index       uint64
}

// txnError is why a transaction failed, as Consul's API has it.
type txnError struct {
	OpIndex int
	What    string
}

// txnResult is a result of a transaction.
type txnResult struct{ KV kvPair }

// grammar lists the verbs, with the fields that each uses besides Key.
func grammar(verb string) (uses string, known bool) {
	switch verb {
	case "set":
		return "value flags", true
	case "cas":
		return "value flags index", true
	case "lock", "unlock":
		return "value flags session", true
	case "delete-cas", "check-index":
		return "index", true
	case "check-session":
		return "session", true
	case "get", "get-or-empty", "get-tree", "check-not-exists", "delete", "delete-tree":
		return "", true
	}
	return "", false
}

// isWrite reports whether an operation may change keys.
func (o *keyOp) isWrite() bool {
	switch o.verb {
	case "set", "cas", "lock", "unlock", "delete", "delete-tree", "delete-cas":
		return true
	}
	return false
}

// ofTree reports whether an operation concerns all keys with a prefix.
func (o *keyOp) ofTree() bool { return o.verb == "get-tree" || o.verb == "delete-tree" }

// txn executes a transaction.
func (c *call) txn(string) error {
	body, release, err := c.body(c.txns, maxTxn, func(int64) error {
		return refuse(http.StatusRequestEntityTooLarge, "Request body too large, max size: %d bytes", maxTxn)
	})
	if err != nil {
		return err
	}
	defer release()
	ops, err := parseTxn(body)
	if err != nil {
		return err
	}
	for i := range ops {
		if err := c.authorizeOp(&ops[i]); err != nil {
			return err
		}
	}
	if c.index != 0 {
		return invalid("index %d: a transaction is no blocking query", c.index)
	}
	return c.gathered(func() error { return c.run(ops) })
}

// run executes the operations of a transaction, in one of the places for that.
func (c *call) run(ops []keyOp) error {
	done, err := c.place(c.running)
	if err != nil {
		return err
	}
	defer done()
	defer func() {
		if c.collecting {
			<-c.listings
			c.collecting = false
		}
	}()
	if slices.ContainsFunc(ops, func(o keyOp) bool { return o.isWrite() }) {
		return c.writeTxn(ops)
	}
	return c.readTxn(ops)
}

// gathersMuch takes one of the places of listings until the transaction ends: what it reads is copied,
// and the copies of all transactions under way together would have no other bound.
func (c *call) gathersMuch(ctx context.Context) error {
	if c.collecting {
		return nil
	}
	select {
	case c.listings <- struct{}{}:
		c.collecting = true
		return nil
	case <-ctx.Done():
		return busy("too many listings of keys are under way")
	}
}

func (c *call) authorizeOp(o *keyOp) error {
	verb, resource := Read, "key/"+o.key
	if o.isWrite() {
		verb = Write
	}
	if o.ofTree() {
		resource = "key_prefix/" + o.key
	}
	return c.authorize(verb, resource)
}

func parseTxn(body []byte) ([]keyOp, error) {
	raw, err := splitTxn(body)
	if err != nil {
		return nil, err
	}
	ops := make([]keyOp, len(raw))
	for i, r := range raw {
		f, err := parseFields(r, "kv")
		if err == nil && isZero(f["kv"]) {
			err = invalid("want KV: operations on keys are all that is supported")
		}
		if err == nil {
			f, err = parseFields(f["kv"], "verb", "key", "value", "flags", "index", "session")
		}
		if err == nil {
			err = ops[i].parse(f)
		}
		if err != nil {
			status, text := statusOf(err)
			return nil, refuse(status, "operation %d: %s", i, text)
		}
	}
	return ops, nil
}

// splitTxn returns the operations of a transaction, and decodes no more than it may have:
// the request is not authorized yet.
func splitTxn(body []byte) (raw []json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	err = members(d, '[', func() error {
		if len(raw) == maxOps {
			return refuse(http.StatusRequestEntityTooLarge, "Transaction contains too many operations (more than %d)", maxOps)
		}
		raw = append(raw, nil)
		return d.Decode(&raw[len(raw)-1])
	})
	var refused *httpError
	if err != nil && !errors.As(err, &refused) {
		err = invalid("Failed to parse body: %v", err)
	}
	return raw, err
}

func (o *keyOp) parse(f fields) error {
	if err := f.texts(map[string]*string{"Verb": &o.verb, "Key": &o.key, "Session": &o.session}); err != nil {
		return err
	}
	for name, number := range map[string]*uint64{"Flags": &o.flags, "Index": &o.index} {
		if err := f.into(name, number); err != nil {
			return err
		}
	}
	if err := f.into("Value", &o.value); err != nil {
		return err
	}
	uses, known := grammar(o.verb)
	if !known {
		return invalid("unknown KV verb %q", shorten(o.verb))
	}
	for _, name := range []string{"value", "flags", "index", "session"} {
		if raw := f[name]; raw != nil && !isZero(raw) && !strings.Contains(uses, name) {
			return invalid("field %q has no effect with %s", name, o.verb)
		}
	}
	if o.key == "" && !o.ofTree() {
		return invalid("Must provide key")
	}
	if n := len(o.value); n > maxValue {
		return refuse(http.StatusRequestEntityTooLarge, "Value for key %q is too large (%d > %d bytes)", shorten(o.key), n, maxValue)
	}
	return validKey(o.key)
}

// succeed answers with the results of a transaction.
func (c *call) succeed(results []txnResult) error {
	list, err := encodeAll(c, slices.Values(results))
	if err != nil {
		return err
	}
	body := bytes.Join([][]byte{[]byte(`{"Results":`), bytes.TrimSpace(list), []byte(`,"Errors":null}`)}, nil)
	if c.query.Has("pretty") {
		var b bytes.Buffer
		if err := json.Indent(&b, body, "", "    "); err != nil {
			return err
		}
		body = append(b.Bytes(), '\n')
	}
	return c.write(http.StatusOK, "application/json", body)
}

// rollBack answers that a transaction had no effect.
func (c *call) rollBack(why []*txnError) error {
	return c.answerWith(http.StatusConflict, struct {
		Results []txnResult
		Errors  []*txnError
	}{nil, why})
}

// bare is an entry without its value.
func bare(e conclave.Entry) txnResult {
	e.Value = nil
	return txnResult{pairOf(e)}
}
