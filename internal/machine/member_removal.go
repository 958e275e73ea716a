package machine

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// removalDue returns when the member is removed by time; never: not as things stand.
func (m *Machine) removalDue(k *fact.MemberRecord) int64 {
	config, due := m.GroupConfig(), int64(math.MaxInt64)
	if !k.Registered && len(k.Key) > 0 {
		return after(k.Since, AdmissionTTL)
	}
	if k.Silent && k.Ephemeral && config.ReplaceAfter > 0 {
		due = after(k.Since, config.ReplaceAfter)
	}
	if k.Silent && config.RemoveAfter > 0 {
		due = min(due, after(k.Since, config.RemoveAfter))
	}
	return due
}

// nextRemoval returns the member that is removed by time first, and when; 0: none. One
// registered member that is not silent must remain. A further group leaves that to the default one.
func (m *Machine) nextRemoval() (id uint64, at int64) {
	at = math.MaxInt64
	members, live := m.Members(), 0
	for i := range members {
		if members[i].Registered && !members[i].Silent {
			live++
		}
	}
	if live == 0 || m.following != nil {
		return 0, at
	}
	for i := range members {
		if due := m.removalDue(&members[i]); due < at {
			id, at = members[i].ID, due
		}
	}
	return id, at
}

// removeOverdue removes the member whose removal by time is due, one in each entry.
func (m *Machine) removeOverdue() {
	if id, at := m.nextRemoval(); id != 0 && at <= m.now {
		m.remove(m.members[id])
	}
}

// removeMember removes the incarnation's member from the group, or another one. Its ID is
// kept, so that it is never used again. A member that can vote must remain: another voter, or
// a member that runs and can be promoted.
func (m *Machine) removeMember(inc *incarnation, c *wire.RemoveMember) *wire.Reply {
	id := cmp.Or(c.Member, inc.member)
	k := m.known(id)
	if k == nil { // a founder that never registered
		if r := m.checkRoom(); r != nil {
			return r
		}
		k = newMember(id)
		m.addMember(k)
	}
	if k.removed {
		return m.reply(wire.Code_OK)
	}
	votes := func(voter uint64) bool {
		other := m.known(voter)
		return voter != id && (other == nil || !other.removed)
	}
	runs := func(r fact.MemberRecord) bool { return r.ID != id && r.Registered && !r.Silent }
	if !slices.ContainsFunc(c.Voters, votes) && !slices.ContainsFunc(m.Members(), runs) {
		return m.refuse(wire.Code_INVALID, "every other voter has been removed; the last voter cannot be")
	}
	m.remove(k)
	return m.reply(wire.Code_OK)
}

// remove removes a member: its process is unregistered, and its sessions and checks end.
func (m *Machine) remove(k *member) {
	inc := m.process(k)
	if inc != nil && inc.member != k.id {
		inc = nil // by now another member's of that ID
	}
	k.removed, k.since, k.crashed = true, 0, false
	if !k.isRegistered() {
		k.since = m.now
		m.makeRoom()
	}
	m.memberChanged(k)
	var shortened shortened
	if inc != nil {
		m.dropPlaces(inc, &shortened)
	}
	m.endSessions(m.sessionsOf(k), fact.MemberRemoved, shortened)
	for _, name := range slices.Sorted(maps.Keys(k.checks)) {
		m.removeCheck(k.checks[name])
	}
	for _, c := range k.builtIn(m.levels) {
		m.checks.Delete(c)
	}
	if inc != nil {
		m.drop(inc, fact.MemberRemoved)
	}
	delete(m.members, k.id)
	k.checks, k.dependents = nil, nil
	m.former.add(k)
	m.roster, m.registered = nil, nil
}

// sessionsOf returns all sessions of a member, unbound ones included, by creation.
func (m *Machine) sessionsOf(k *member) []*session {
	return slices.SortedFunc(slices.Values(k.sessions.AppendTo(nil, &m.visits)), byCreation)
}
