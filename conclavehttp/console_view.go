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
	Group  string // the further group whose locks, keys and so on are shown; "": the default one
	Show   kind   // the listing
	Prefix string
	After  string // a cursor: the last item of the page before
	Of     string // the member, client or session whose holds are listed; "": all
	Lock   string // to explain; "": none
}

// kind is what a query asks for.
type kind string

const (
	kindLocks      kind = "locks"
	kindSemaphores kind = "semaphores"
	kindElections  kind = "elections"
	kindShards     kind = "shards"
	kindJobs       kind = "jobs"
	kindKeys       kind = "keys"
	kindSessions   kind = "sessions"
	kindChecks     kind = "checks"

	kindWaiting kind = "waiting"

	kindLock   kind = "lock"
	kindCycles kind = "cycles"
	kindGroup  kind = "group"
)

// listings are the kinds that a view may show, in the order of the tabs.
func listings() []kind {
	return []kind{kindLocks, kindSemaphores, kindElections, kindShards, kindJobs, kindKeys, kindSessions, kindChecks}
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
	group         string // see view
	kind          kind
	prefix, after string
	of            string // see view
}

const maxParameter = 4 << 10 // bytes; a name has 512 at most

// viewOf parses the parameters of a page. Keys are shown if the console is to.
func viewOf(parameters url.Values, withKeys bool) (view, error) {
	v := view{
		Group: parameters.Get("group"), Show: cmp.Or(kind(parameters.Get("show")), kindLocks),
		Prefix: parameters.Get("prefix"), After: parameters.Get("after"), Of: parameters.Get("of"), Lock: parameters.Get("lock"),
	}
	if v.Show == kindKeys && !withKeys {
		return v, fmt.Errorf("%w parameter show: this console does not show keys: set ConsoleOptions.ShowKeys, or --console-keys of an agent", conclave.ErrInvalid)
	}
	if v.Show.id() != "listing" {
		return v, fmt.Errorf("%w parameter show: want one of %v, got %q", conclave.ErrInvalid, listings(), v.Show[:min(len(v.Show), maxQuoted)])
	}
	if _, err := parseOwnership(v.Of); err != nil {
		return v, err
	}
	if len(v.Group)+len(v.Prefix)+len(v.After)+len(v.Lock) > maxParameter {
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

// queries returns what has to be read for a view. The settings are those of the default group, for all groups.
func (v view) queries() []query {
	all := []query{{group: v.Group, kind: v.Show, prefix: v.Prefix, after: v.After, of: v.Of}, {group: v.Group, kind: kindCycles}, {kind: kindGroup}}
	if v.Waited() {
		all = append(all, query{group: v.Group, kind: kindWaiting, prefix: v.Prefix})
	}
	if v.Lock != "" {
		all = append(all, query{group: v.Group, kind: kindLock, prefix: v.Lock})
	}
	return all
}

// Waited reports whether the locks that requests wait for are shown before the listing.
func (v view) Waited() bool { return v.Show == kindLocks && v.After == "" && v.Of == "" }

// pause returns how long the answer is shown before it is read again. What reads all waiters, or many objects, takes 1 %
// of the time at most.
func (q query) pause(took time.Duration) time.Duration {
	switch {
	case q.kind == kindCycles:
		return max(slowly, 100*took)
	case q.kind == kindGroup:
		return slowly
	case q.kind == kindWaiting, q.kind == kindShards, q.kind == kindJobs, q.of != "":
		return max(refresh, 100*took)
	}
	return refresh
}

// source is what panes are read from.
type source struct {
	node         *conclave.Node
	canAct       bool
	certificates func() (certificate, authorities time.Time) // nil: not known
	seen         *seenHolders
}

// isIdle reports that a query is answered without the group, since nothing waits.
func (s *source) isIdle(q query) bool {
	if q.kind != kindCycles && q.kind != kindWaiting {
		return false
	}
	n, known := waiters(s.node.Metrics(), q.group)
	return known && n == 0
}

// answer reads what the query asks for, for the template of its kind.
func (s *source) answer(ctx context.Context, q query) answerData {
	a := answerData{InGroup: q.group, Kind: q.kind, Prefix: q.prefix, After: q.after, Of: q.of, CanAct: s.canAct, Now: time.Now(), members: namesOf(s.node)}
	if a.of, a.Err = parseOwnership(q.of); a.Err != nil || s.isIdle(q) {
		return a
	}
	group := groupOf(s.node, q.group)
	switch q.kind {
	case kindLock:
		a.Explanation, a.Err = group.Explain(ctx, q.prefix)
		a.MoreHolders = max(0, a.Explanation.Shared-rows)
		a.Explanation.Holders = a.Explanation.Holders[:min(rows, len(a.Explanation.Holders))]
		a.MoreQueue = max(0, a.Explanation.Waiters-rows)
		a.Explanation.Queue = a.Explanation.Queue[:min(rows, len(a.Explanation.Queue))]
		if a.Err == nil {
			s.seen.noteExplained(a.Now, q.group, a.Explanation)
		}
		a.Former = s.seen.former(lockID{q.group, q.prefix}, s.node.History())
	case kindWaiting:
		a.listWaited(ctx, group, q)
	case kindCycles:
		a.Cycles, a.Err = group.WaitCycles(ctx)
		a.MoreCycles = max(0, len(a.Cycles)-maxCycles)
		a.Cycles = a.Cycles[:min(maxCycles, len(a.Cycles))]
	case kindGroup:
		a.Settings, a.Err = group.GroupConfig(ctx)
		a.Validity = validities(s.certificates, a.Now)
	default:
		a.list(ctx, group, q)
	}
	for _, l := range a.Locks {
		s.seen.noteListed(a.Now, q.group, l)
	}
	for _, l := range a.Waited {
		s.seen.noteListed(a.Now, q.group, l.LockInfo)
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
