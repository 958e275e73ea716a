package conclavehttp

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/conclave-go/conclave"
)

// A page is of one group: the default one, whose name is "" here, or a further one. What the group does not have by
// itself, such as its members and the node's health, is on each page.

// viewOf parses the parameters of a request.
func (h *ConsoleHandler) viewOf(r *http.Request) (view, error) {
	v, err := viewOf(r.URL.Query(), h.opts.ShowKeys)
	v.Group = h.further(v.Group)
	return v, err
}

// further returns the name of a further group; "": it is the default one.
func (h *ConsoleHandler) further(group string) string {
	if group != "" && group == h.node.Status().Group {
		return ""
	}
	return group
}

// groupOf returns the group that is read, or that an act is about.
func groupOf(node *conclave.Node, name string) *conclave.Group {
	if name == "" {
		return node.Group
	}
	return node.WithGroup(name)
}

// waiters returns how many requests wait in a group; known: this node has a replica of it.
func waiters(m conclave.Metrics, group string) (n int, known bool) {
	if group == "" {
		return m.Waiters, true
	}
	i := slices.IndexFunc(m.Groups, func(g conclave.GroupMetrics) bool { return g.Name == group })
	if i < 0 {
		return 0, false
	}
	return m.Groups[i].Waiters, true
}

// groupRow is a group in the overview.
type groupRow struct {
	conclave.GroupMetrics
	Further string // its name, of a further one
	Leader  string // "": none is known
}

// Groups returns the overview of all groups, the default one first; nil: there is no further one.
func (s *snapshot) Groups() []groupRow {
	if len(s.Metrics.Groups) == 0 {
		return nil
	}
	return s.groups()
}

// groups returns all groups of which this node has a replica, the default one first.
func (s *snapshot) groups() []groupRow {
	rows := []groupRow{{Leader: s.Leader, GroupMetrics: conclave.GroupMetrics{
		Name: s.Status.Group, Leader: s.Status.Leader, Term: s.Status.Term, Applied: s.Status.Applied, Metrics: s.Metrics,
	}}}
	for _, g := range s.Metrics.Groups {
		rows = append(rows, groupRow{g, g.Name, s.members.of(g.Leader)})
	}
	return rows
}

// of returns the snapshot for the pages of a group. One of which this node has no replica has those of the default group, and
// the listing states what is the matter.
func (s *snapshot) of(group string) *snapshot {
	shown := *s
	shown.Group = ""
	if _, known := waiters(s.Metrics, group); known {
		shown.Group = group
	}
	return &shown
}

// Shown returns the group that the page shows.
func (s *snapshot) Shown() groupRow {
	all := s.groups()
	return all[slices.IndexFunc(all, func(g groupRow) bool { return g.Further == s.Group })]
}

// NoGroup reports whether the answer is that the group does not exist.
func (a answerData) NoGroup() bool { return errors.Is(a.Err, conclave.ErrGroupNotFound) }

// reference is a process or session of a group, to which a link leads.
type reference struct {
	Group string
	ID    any
}

func referTo(group string, id any) reference { return reference{group, id} }

// closeSession closes a session of a group.
func (h *ConsoleHandler) closeSession(ctx context.Context, act Act) error {
	return groupOf(h.node, act.Group).CloseSession(ctx, act.Session)
}
