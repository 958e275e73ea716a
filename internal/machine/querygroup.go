package machine

import "github.com/conclave-go/conclave/internal/fact"

// GroupsQuery asks for the further groups. The answer is a []GroupView by number, MaxGroups at most.
type GroupsQuery struct{}

// GroupView is a further group.
type GroupView struct {
	Number  uint32
	Name    string
	Created uint64 // index of its creation
}

// Begin implements [Query].
func (GroupsQuery) Begin(m *Machine) func() any {
	d := m.Directory()
	return func() any {
		views := make([]GroupView, 0, len(d.Groups))
		for _, g := range d.Groups {
			views = append(views, viewGroup(g))
		}
		return views
	}
}

// GroupQuery asks for a further group. The answer is a *GroupView: nil if there is none of that name.
type GroupQuery struct{ Name string }

// Begin implements [Query].
func (q GroupQuery) Begin(m *Machine) func() any {
	g := m.groups.byName[q.Name]
	if g == nil {
		return answered((*GroupView)(nil))
	}
	v := viewGroup(g.GroupRecord)
	return answered(&v)
}

func viewGroup(g *fact.GroupRecord) GroupView {
	return GroupView{Number: g.Number, Name: g.Name, Created: g.Created}
}

// FollowingQuery asks for what a further group has of the default one. The answer is a *fact.Following: nil of
// the default group.
type FollowingQuery struct{}

// Begin implements [Query].
func (FollowingQuery) Begin(m *Machine) func() any { return answered(m.Following()) }
