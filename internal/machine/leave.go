package machine

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// leave lets the member of an incarnation go for good. Its ID is remembered, so
// that nobody comes back under it. One voter has to stay: without one nothing
// could ever be agreed on again.
func (m *Machine) leave(inc *incarnation, c *wire.RemoveMember) *wire.Reply {
	k := m.members[inc.member]
	stays := func(voter uint64) bool { return voter != k.id && !slices.Contains(m.removed, voter) }
	if !slices.ContainsFunc(c.Voters, stays) {
		return m.refuse(wire.Code_INVALID, "every other voter has left; the last one cannot")
	}
	m.goes(k)
	m.dirty.put(k.key(), k)
	m.endSessions(m.sessionsOf(k), invalidated, m.dropPlaces(inc))
	for _, name := range slices.Sorted(maps.Keys(k.checks)) {
		m.forgetCheck(k.checks[name])
	}
	m.checks.Delete(k.builtIn())
	m.drop(inc, invalidated)
	return m.reply(wire.Code_OK)
}

// goes notes that a member has left.
func (m *Machine) goes(k *member) {
	k.removed = true
	i, _ := slices.BinarySearch(m.removed, k.id)
	m.removed = slices.Insert(slices.Clone(m.removed), i, k.id)
}

// Removed returns the members that have left for good, ascending. It is never
// changed.
func (m *Machine) Removed() []uint64 { return m.removed }

// sessionsOf returns all sessions of a member, by creation, also those that wait
// to be attached.
func (m *Machine) sessionsOf(k *member) []*session {
	return slices.SortedFunc(slices.Values(k.sessions.appendTo(nil)), byCreation)
}
