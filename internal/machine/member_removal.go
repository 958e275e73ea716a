package machine

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// removing is a machine as far as it removes members.
type removing struct{ *Machine }

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

// overdue returns the member whose removal by time is due, one in each entry; nil: none.
func (x removing) overdue() *member {
	if id, at := x.nextRemoval(); id != 0 && at <= x.now {
		return x.members[id]
	}
	return nil
}

// removeOverdue removes that member below the level at which its sessions end with others.
func (x removing) removeOverdue() {
	if x.endsTogether() {
		return
	}
	if late := x.overdue(); late != nil {
		x.remove(late)
	}
}

// removeMember removes the incarnation's member from the group, or another one. Its ID is
// kept, so that it is never used again. A member that can vote must remain: another voter, or
// a member that runs and can be promoted.
func (m *Machine) removeMember(inc *incarnation, c *wire.RemoveMember) *wire.Reply {
	id := cmp.Or(c.Member, inc.member)
	k := m.known(id)
	switch {
	case k == nil: // a founder that never registered
		if r := m.checkRoom(); r != nil {
			return r
		}
	case k.removed:
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
	if k == nil { // not before: one of a refused removal would be in memory, and not on disk
		k = newMember(id)
		m.addMember(k)
	}
	removing{m}.remove(k)
	return m.reply(wire.Code_OK)
}

// endsTogether reports whether sessions of several members, and those of one removed by time and those that expire, end
// before anything is granted that one of them held. Below that level they ended one after another.
func (x removing) endsTogether() bool { return x.levels.agreed >= wire.LevelTogether }

// remove removes members: their processes are unregistered, and their sessions and checks end. All the sessions end before anything
// is granted that one of them held, unless the level is below that of endsTogether.
func (x removing) remove(all ...*member) {
	if len(all) > 1 && !x.endsTogether() {
		for _, k := range all {
			x.remove(k)
		}
		return
	}
	var shortened shortened
	for _, k := range all {
		x.begin(k, &shortened)
	}
	x.endSessions(nil, fact.MemberRemoved, shortened)
	for _, k := range all {
		x.finish(k)
	}
}

// begin ends the sessions of a member that is removed. What they had is released by endSessions; then finish must be
// called.
func (x removing) begin(k *member, shortened *shortened) {
	k.removed, k.since, k.crashed = true, 0, false
	if !k.isRegistered() {
		k.since = x.now
		x.makeRoom()
	}
	x.former.add(k) // makeRoom for the next one counts it
	x.memberChanged(k)
	if inc := x.processOf(k); inc != nil {
		x.dropPlaces(inc, shortened)
	}
	for _, s := range x.sessionsOf(k) {
		x.endSession(s, fact.MemberRemoved)
	}
}

// finish removes what is left of a member behind its sessions.
func (x removing) finish(k *member) {
	for _, name := range slices.Sorted(maps.Keys(k.checks)) {
		x.removeCheck(k.checks[name])
	}
	for _, c := range k.builtIn(x.levels) {
		x.checks.Delete(c)
	}
	if inc := x.processOf(k); inc != nil {
		x.drop(inc, fact.MemberRemoved)
	}
	delete(x.members, k.id)
	k.checks, k.dependents = nil, nil
	x.roster, x.registered = nil, nil
}

// processOf is process, unless the ID is by now that of another member's process.
func (x removing) processOf(k *member) *incarnation {
	if inc := x.process(k); inc != nil && inc.member == k.id {
		return inc
	}
	return nil
}

// sessionsOf returns all sessions of a member, unbound ones included, by creation.
func (m *Machine) sessionsOf(k *member) []*session {
	return slices.SortedFunc(slices.Values(k.sessions.AppendTo(nil, &m.visits)), byCreation)
}
