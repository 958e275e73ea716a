package machine

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// A standalone session is bound to no process, as Consul's sessions are: RenewSession by any
// process renews it alone. It belongs to a member, whose checks it depends on and whose
// removal ends it.

// createSession opens a standalone session of the incarnation's member.
func (m *Machine) createSession(inc *incarnation, c *wire.OpenSession) *wire.Reply {
	if c == nil {
		return m.refuse(wire.Code_INVALID, "the session is missing")
	}
	return m.open(inc, c, true)
}

// renewSession renews a standalone session. One without a TTL needs no renewal, and the
// outcome shows that it lives.
func (m *Machine) renewSession(c *wire.RenewSession) *wire.Reply {
	s, refusal := m.live(c.Id)
	switch {
	case s == nil:
		return refusal
	case !s.standalone:
		return m.refuse(wire.Code_INVALID, "the session is bound to a process, which renews it")
	case s.ttl != 0:
		m.renewAlone(s)
	}
	return m.bound(s)
}

// hasStandalone reports that the group's feature level has standalone sessions.
func (m *Machine) hasStandalone() bool { return m.levels.agreed >= wire.LevelStandalone }

func (m *Machine) renewAlone(s *session) {
	s.renewed = m.now
	m.standalone.Fix(s)
	m.dirty.put(s.key(), s)
}

// mayStandAlone refuses sessions beyond those that the first entry of a term can renew.
func (m *Machine) mayStandAlone(c *wire.OpenSession) *wire.Reply {
	if c.Ttl != 0 && m.standalone.Len() >= MaxStandalone {
		return m.refuse(wire.Code_BUSY, "the group has too many sessions that no process is bound to; close some")
	}
	return nil
}

// standAlone begins the TTL of a session that is new, or read.
func (m *Machine) standAlone(s *session) {
	if s.ttl != 0 {
		m.standalone.Push(s)
	}
}

// endStandalone ends the TTL of a session.
func (m *Machine) endStandalone(s *session) {
	if s.at != 0 {
		m.standalone.Remove(s)
	}
}

// refreshStandalone renews each standalone session.
func (m *Machine) refreshStandalone() {
	sessions := m.standalone.All()
	slices.SortFunc(sessions, byCreation)
	for _, s := range sessions {
		m.renewAlone(s)
	}
}

func byOwnDeadline(a, b *session) int {
	return cmp.Or(cmp.Compare(a.deadline(), b.deadline()), byCreation(a, b))
}
