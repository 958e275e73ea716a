package machine

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// removeMember removes the incarnation's member from the group. Its ID is kept, so
// that it is never used again. One voter must remain, or the group could never
// commit again.
func (m *Machine) removeMember(inc *incarnation, c *wire.RemoveMember) *wire.Reply {
	k := m.members[inc.member]
	remains := func(voter uint64) bool {
		other := m.members[voter]
		return voter != k.id && (other == nil || !other.removed)
	}
	if !slices.ContainsFunc(c.Voters, remains) {
		return m.refuse(wire.Code_INVALID, "every other voter has been removed; the last voter cannot be")
	}
	k.removed, m.removed = true, nil
	m.dirty.put(k.key(), k)
	m.endSessions(m.sessionsOf(k), invalidated, m.dropPlaces(inc))
	for _, name := range slices.Sorted(maps.Keys(k.checks)) {
		m.removeCheck(k.checks[name])
	}
	m.checks.Delete(k.builtIn())
	m.drop(inc, invalidated)
	return m.reply(wire.Code_OK)
}

// Removed returns the removed members, ascending. The slice is never changed.
func (m *Machine) Removed() []uint64 {
	if m.removed == nil {
		m.removed = make([]uint64, 0)
		for id, k := range m.members { // order: sorted below
			if k.removed {
				m.removed = append(m.removed, id)
			}
		}
		slices.Sort(m.removed)
	}
	return m.removed
}

// sessionsOf returns all sessions of a member, unbound ones included, by creation.
func (m *Machine) sessionsOf(k *member) []*session {
	return slices.SortedFunc(slices.Values(k.sessions.appendTo(nil, &m.visits)), byCreation)
}
