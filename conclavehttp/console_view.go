package conclavehttp

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-go/conclave"
)

// view is what a browser looks at, as its URL says.
type view struct {
	Show   kind // the listing
	Prefix string
	After  string // a cursor: the last item of the page before
	Lock   string // to explain; "": none
}

// kind is what a query asks for.
type kind string

const (
	kindLocks      kind = "locks"
	kindSemaphores kind = "semaphores"
	kindElections  kind = "elections"
	kindSessions   kind = "sessions"
	kindChecks     kind = "checks"

	kindLock   kind = "lock"
	kindCycles kind = "cycles"
	kindGroup  kind = "group"
)

// listings are the kinds that a view may show, in the order of the tabs.
func listings() []kind {
	return []kind{kindLocks, kindSemaphores, kindElections, kindSessions, kindChecks}
}

// id returns the ID of the part, which is the name of its template.
func (k kind) id() string {
	for _, l := range listings() {
		if k == l {
			return "listing"
		}
	}
	return string(k)
}

// query is a read through the group, which browsers that look at the same share.
type query struct {
	kind          kind
	prefix, after string
}

const maxParameter = 4 << 10 // bytes; a name has 512 at most

func viewOf(parameters url.Values) (view, error) {
	v := view{
		Show:   cmp.Or(kind(parameters.Get("show")), kindLocks),
		Prefix: parameters.Get("prefix"), After: parameters.Get("after"), Lock: parameters.Get("lock"),
	}
	if v.Show.id() != "listing" {
		return v, fmt.Errorf("%w parameter show: want one of %v, got %q", conclave.ErrInvalid, listings(), v.Show[:min(len(v.Show), maxQuoted)])
	}
	if len(v.Prefix)+len(v.After)+len(v.Lock) > maxParameter {
		return v, fmt.Errorf("%w parameters: they are longer than names can be", conclave.ErrTooLarge)
	}
	return v, nil
}

// link returns the URL of a view, relative to the page: pairs of parameters and values.
func link(pairs ...any) string {
	values := make(url.Values)
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := fmt.Sprint(pairs[i+1]); value != "" {
			values.Set(fmt.Sprint(pairs[i]), value)
		}
	}
	return "?" + values.Encode()
}

// queries returns what has to be read for a view.
func (v view) queries() []query {
	all := []query{{kind: v.Show, prefix: v.Prefix, after: v.After}, {kind: kindCycles}, {kind: kindGroup}}
	if v.Lock != "" {
		all = append(all, query{kind: kindLock, prefix: v.Lock})
	}
	return all
}

// pause returns how long the answer is shown before it is read again. A search for cycles reads
// all waiters, so it takes 1 % of the time at most.
func (q query) pause(took time.Duration) time.Duration {
	switch q.kind {
	case kindCycles:
		return max(slowly, 100*took)
	case kindGroup:
		return slowly
	}
	return refresh
}

// answer reads what the query asks for, for the template of its kind.
func (q query) answer(ctx context.Context, node *conclave.Node, canAct bool) any {
	a := answerData{Kind: q.kind, Prefix: q.prefix, After: q.after, CanAct: canAct, members: namesOf(node)}
	switch q.kind {
	case kindLock:
		a.Explanation, a.Err = node.Explain(ctx, q.prefix)
		a.MoreQueue = max(0, a.Explanation.Waiters-rows)
		a.Explanation.Queue = a.Explanation.Queue[:min(rows, len(a.Explanation.Queue))]
	case kindCycles:
		if node.Metrics().Waiters > 0 {
			a.Cycles, a.Err = node.WaitCycles(ctx)
		}
		a.MoreCycles = max(0, len(a.Cycles)-maxCycles)
		a.Cycles = a.Cycles[:min(maxCycles, len(a.Cycles))]
	case kindGroup:
		a.Group, a.Err = node.GroupConfig(ctx)
	default:
		a.list(ctx, node, q)
	}
	return a
}

const (
	rows      = 50 // of a page of a listing, and of a queue
	maxCycles = 20
)

// parseSessionCursor parses what sessionCursor returned.
func parseSessionCursor(text string) (s conclave.SessionInfo, err error) {
	index, id, _ := strings.Cut(text, "-")
	if s.CreateIndex, err = strconv.ParseUint(index, 10, 64); err == nil {
		s.ID, err = conclave.ParseSessionID(id)
	}
	return s, invalidCursor(text, err)
}

func sessionCursor(s conclave.SessionInfo) string { return fmt.Sprintf("%d-%v", s.CreateIndex, s.ID) }

// parseCheckCursor parses what checkCursor returned.
func parseCheckCursor(text string) (c conclave.CheckInfo, err error) {
	node, name, _ := strings.Cut(text, "/")
	c.Name = name
	return c, invalidCursor(text, c.Node.UnmarshalText([]byte(node)))
}

func checkCursor(c conclave.CheckInfo) string { return fmt.Sprintf("%v/%s", c.Node, c.Name) }

func invalidCursor(text string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w parameter after: %q: begin with the first page", conclave.ErrInvalid, text)
}
