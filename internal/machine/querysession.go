package machine

import (
	"github.com/conclave-go/conclave/internal/wire"
)

// SessionQuery asks for a session. The answer is a *SessionView: nil if the
// session does not exist.
type SessionQuery struct{ ID wire.ID }

// Begin implements [Query].
func (q SessionQuery) Begin(m *Machine) func() any {
	s := m.sessions[q.ID]
	if s == nil || s.dead() {
		return answered((*SessionView)(nil))
	}
	v := m.viewSession(s)
	return answered(&v)
}

// SessionsQuery asks for sessions. The answer is a []SessionView by create index,
// then ID.
type SessionsQuery struct {
	After SessionCursor
	Limit int
}

// SessionCursor is a session's place in the order of SessionsQuery. The zero
// cursor is before all sessions.
type SessionCursor struct {
	CreateIndex uint64
	ID          wire.ID
}

// Cursor returns the session's place in the order of SessionsQuery.
func (v SessionView) Cursor() SessionCursor { return SessionCursor{v.CreateIndex, v.ID} }

// Begin implements [Query].
func (q SessionsQuery) Begin(m *Machine) func() any {
	var views []SessionView
	p := m.newPage(q.Limit)
	after := &session{createIndex: q.After.CreateIndex, id: q.After.ID}
	m.byCreation.AscendGreaterOrEqual(after, func(s *session) bool {
		if s.createIndex == q.After.CreateIndex && s.id == q.After.ID {
			return true
		}
		views = append(views, m.viewSession(s))
		return p.add(s.listedBytes())
	})
	return answered(views)
}

// ChecksQuery asks for the checks of all members, the built-in ones included. The
// answer is a []CheckView by member, then name.
type ChecksQuery struct {
	After CheckCursor
	Limit int
}

// CheckCursor is a check's place in the order of ChecksQuery. The zero cursor is
// before all checks.
type CheckCursor struct {
	Member uint64
	Name   string
}

// CheckView is a check at the applied index.
type CheckView struct {
	Member    uint64
	Name      string
	State     wire.CheckState
	TTL       int64 // 0: none
	Remaining int64 // until it becomes critical unless refreshed; 0 if it does not
	BuiltIn   bool  // not registered: a verdict of the failure detector, or of the voters
}

// Cursor returns the check's place in the order of ChecksQuery.
func (v CheckView) Cursor() CheckCursor { return CheckCursor{v.Member, v.Name} }

// Begin implements [Query].
func (q ChecksQuery) Begin(m *Machine) func() any {
	var views []CheckView
	p := m.newPage(q.Limit)
	after := &check{member: &member{id: q.After.Member}, name: q.After.Name}
	m.checks.AscendGreaterOrEqual(after, func(c *check) bool {
		if c.member.id == q.After.Member && c.name == q.After.Name {
			return true
		}
		views = append(views, m.viewCheck(c))
		return p.add(len(c.name))
	})
	return answered(views)
}

func (m *Machine) viewCheck(c *check) CheckView {
	v := CheckView{Member: c.member.id, Name: c.name, State: c.status, TTL: c.ttl}
	if c.member.hasBuiltIn(m.levels, c.name) {
		v.BuiltIn, v.State = true, c.member.builtInState(c.name)
	}
	if c.at != 0 {
		v.Remaining = c.deadline() - m.now
	}
	return v
}

// GroupConfigQuery asks for the settings of the group. The answer is a fact.GroupConfig.
type GroupConfigQuery struct{}

// Begin implements Query.
func (GroupConfigQuery) Begin(m *Machine) func() any { return answered(m.GroupConfig()) }

// RemovedQuery asks whether a member has been removed. The answer is a bool.
type RemovedQuery struct{ Member uint64 }

// Begin implements [Query].
func (q RemovedQuery) Begin(m *Machine) func() any {
	k := m.known(q.Member)
	return answered(k != nil && k.removed)
}
