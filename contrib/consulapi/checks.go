package consulapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/conclave-go/conclave"
)

const (
	maxChecks    = 256 // conclave's limit for those of a member's clients
	maxNotes     = 4 << 10
	maxOutput    = 4 << 10 // longer ones are truncated
	maxCheckBody = 64 << 10
)

// checkTable has what the group does not know about this node's checks: what a Consul
// agent keeps to itself.
type checkTable struct {
	mu   sync.Mutex
	byID map[string]*agentCheck // guarded by mu; the values are replaced, not changed
}

// agentCheck is a check that was registered with this handler.
type agentCheck struct {
	group               *conclave.Group // of the check: one that was deleted and created again has none of it
	check               *conclave.Check
	name, notes, output string
}

func (t *checkTable) get(g *conclave.Group, id string) (agentCheck, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok := t.byID[id]; ok && c.group == g {
		return *c, true
	}
	return agentCheck{}, false
}

// full reports whether there is no place for another check of the group, and forgets those of another one.
func (t *checkTable) full(g *conclave.Group, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.byID, func(_ string, c *agentCheck) bool { return c.group != g })
	return t.byID[id] == nil && len(t.byID) >= maxChecks
}

func (t *checkTable) put(id string, c agentCheck) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[id] = &c
}

// setOutput changes the output of a check, unless it was deregistered meanwhile.
func (t *checkTable) setOutput(id, output string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok := t.byID[id]; ok {
		changed := *c
		changed.output = output
		t.byID[id] = &changed
	}
}

// remove removes a check, unless the name stands for another one by now.
func (t *checkTable) remove(id string, check *conclave.Check) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok := t.byID[id]; ok && c.check == check {
		delete(t.byID, id)
	}
}

// definition is what a client asks for.
type definition struct {
	id, name, notes, status string
	ttl                     time.Duration
}

// parseCheck reads the body of a registration.
func parseCheck(body []byte) (d definition, err error) {
	f, err := parseFields(body, "id", "checkid", "name", "notes", "status", "ttl")
	if err != nil {
		return d, err
	}
	var other string
	err = f.texts(map[string]*string{"ID": &d.id, "CheckID": &other, "Name": &d.name, "Notes": &d.notes, "Status": &d.status})
	ttl := f["ttl"]
	switch {
	case err != nil:
		return d, err
	case d.name == "":
		return d, invalid("Missing check name")
	case d.id != "" && other != "" && d.id != other:
		return d, invalid("ID %q and CheckID %q: want one", shorten(d.id), shorten(other))
	case len(ttl) == 0 || isZero(ttl):
		return d, invalid("Must provide TTL: checks of other kinds are not supported")
	case len(d.name) > maxKey || len(d.notes) > maxNotes:
		return d, refuse(http.StatusRequestEntityTooLarge, "the limits are %d bytes of Name and %d of Notes", maxKey, maxNotes)
	}
	d.id = cmp.Or(d.id, other, d.name)
	if d.status != "" {
		if _, err := stateOf(d.status); err != nil {
			return d, err
		}
	}
	if d.ttl, err = parseDuration(ttl); err != nil || d.ttl <= 0 {
		return d, invalid("TTL '%s' invalid: want a duration", shorten(strings.Trim(string(ttl), `"`)))
	}
	if isBuiltIn(d.id) || d.id == serfHealth {
		return d, invalid("check %q is built in: choose another ID", d.id)
	}
	return d, nil
}

func stateOf(status string) (conclave.CheckState, error) {
	for _, s := range []conclave.CheckState{conclave.CheckPassing, conclave.CheckWarning, conclave.CheckCritical} {
		if s.String() == status {
			return s, nil
		}
	}
	return 0, invalid("Invalid check status: '%s'", shorten(status))
}

func (c *call) checkBody() ([]byte, func(), error) {
	return c.body(c.bodies, maxCheckBody, func(int64) error {
		return refuse(http.StatusRequestEntityTooLarge, "Request body too large, max size: %d bytes", maxCheckBody)
	})
}

func (c *call) mayChangeChecks() error { return c.authorize(Write, "node/"+c.nodes().own()) }

// checkRegister registers a TTL check of this node.
//
// The group has no command that registers a check which is critical. So a new check is
// passing until the command that follows; a session that comes to depend on it meanwhile
// ends with that.
func (c *call) checkRegister(string) error {
	if err := c.mayChangeChecks(); err != nil {
		return err
	}
	body, release, err := c.checkBody()
	if err != nil {
		return err
	}
	defer release()
	d, err := parseCheck(body)
	if err != nil {
		return err
	}
	if c.checks.full(c.group, d.id) {
		return busy("too many checks")
	}
	ctx, cancel := c.patience()
	defer cancel()
	state, output, err := c.initialState(ctx, d)
	if err != nil {
		return err
	}
	check, err := c.group.RegisterClientCheck(ctx, d.id, d.ttl)
	if err != nil {
		return err
	}
	c.checks.put(d.id, agentCheck{c.group, check, d.name, d.notes, output})
	switch state {
	case conclave.CheckWarning:
		err = check.Warn(ctx)
	case conclave.CheckCritical:
		err = check.Fail(ctx)
	}
	if err != nil {
		return err
	}
	return c.write(http.StatusOK, "", nil)
}

// initialState returns the state that a check begins with. As in Consul a check that this
// agent knows keeps its state, and a new one is critical unless its status is given. One
// that an earlier process registered keeps its state unless one is given.
func (c *call) initialState(ctx context.Context, d definition) (state conclave.CheckState, output string, err error) {
	known, ok := c.checks.get(c.group, d.id)
	if !ok && d.status != "" {
		state, err = stateOf(d.status)
		return state, "", err
	}
	state = conclave.CheckCritical
	if d.status != "" {
		state, _ = stateOf(d.status)
	}
	err = c.ownChecks(ctx, func(i conclave.CheckInfo) {
		if i.Name == d.id {
			state = i.State
		}
	})
	return state, known.output, err
}

// ownChecks calls do for each check of this node.
func (c *call) ownChecks(ctx context.Context, do func(conclave.CheckInfo)) error {
	return c.checksOf(ctx, c.node.Status().ID, do)
}

func (c *call) checksOf(ctx context.Context, id conclave.MemberID, do func(conclave.CheckInfo)) error {
	return each(c.group.Checks(ctx, conclave.After(conclave.CheckInfo{Node: id})), func(i conclave.CheckInfo) bool {
		if i.Node == id {
			do(i)
		}
		return i.Node == id
	})
}

// unknownCheck has the text that clients recognize.
func unknownCheck(id string) error {
	return refuse(http.StatusNotFound, "Unknown check ID %q: register it with this agent", shorten(id))
}

// checkDeregister removes a check.
func (c *call) checkDeregister(id string) error {
	if err := c.mayChangeChecks(); err != nil {
		return err
	}
	return c.withCheck(id, func(ctx context.Context, check *conclave.Check) error {
		err := check.Deregister(ctx)
		if err == nil || errors.Is(err, conclave.ErrInvalid) {
			c.checks.remove(id, check)
		}
		return err
	})
}

func (c *call) checkPass(id string) error { return c.checkSet(id, conclave.CheckPassing) }
func (c *call) checkWarn(id string) error { return c.checkSet(id, conclave.CheckWarning) }
func (c *call) checkFail(id string) error { return c.checkSet(id, conclave.CheckCritical) }

func (c *call) checkSet(id string, state conclave.CheckState) error {
	if err := c.mayChangeChecks(); err != nil {
		return err
	}
	return c.report(id, state, c.query.Get("note"))
}

// checkUpdate is pass, warn or fail, with what is reported in the body.
func (c *call) checkUpdate(id string) error {
	if err := c.mayChangeChecks(); err != nil {
		return err
	}
	body, release, err := c.checkBody()
	if err != nil {
		return err
	}
	defer release()
	f, err := parseFields(body, "status", "output")
	if err != nil {
		return err
	}
	var status, output string
	if err := f.texts(map[string]*string{"Status": &status, "Output": &output}); err != nil {
		return err
	}
	state, err := stateOf(status)
	if err != nil {
		return err
	}
	return c.report(id, state, output)
}

// report sets the state of a check, and its output.
func (c *call) report(id string, state conclave.CheckState, output string) error {
	return c.withCheck(id, func(ctx context.Context, check *conclave.Check) (err error) {
		switch state {
		case conclave.CheckPassing:
			err = check.Pass(ctx)
		case conclave.CheckWarning:
			err = check.Warn(ctx)
		default:
			err = check.Fail(ctx)
		}
		if err == nil {
			c.checks.setOutput(id, truncated(output))
		}
		return err
	})
}

func truncated(output string) string {
	output = strings.ToValidUTF8(output, "?")
	if len(output) <= maxOutput {
		return output
	}
	end := maxOutput
	for !utf8.RuneStart(output[end]) {
		end--
	}
	return fmt.Sprintf("%s ... (%d of %d bytes)", output[:end], end, len(output))
}

// withCheck calls do with a check that was registered with this handler.
func (c *call) withCheck(id string, do func(context.Context, *conclave.Check) error) error {
	known, ok := c.checks.get(c.group, id)
	if !ok {
		return unknownCheck(id)
	}
	ctx, cancel := c.patience()
	defer cancel()
	err := do(ctx, known.check)
	switch {
	case errors.Is(err, conclave.ErrInvalid): // it was deregistered otherwise
		return unknownCheck(id)
	case errors.Is(err, conclave.ErrGroupNotFound): // the group that it was registered in is deleted: another one does not know it
		c.checks.remove(id, known.check)
		return err
	case err != nil:
		return err
	}
	return c.write(http.StatusOK, "", nil)
}
