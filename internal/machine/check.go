package machine

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// check is a named state that a member reports of itself. One with a TTL becomes
// critical unless it is refreshed. It belongs to the member and outlives the
// process.
type check struct {
	member    *member
	name      string
	status    wire.CheckState
	ttl       int64 // 0: none
	refreshed int64 // group time
	forClient bool  // of the member's program: see SetCheck
	at        int   // position in checkups
}

// The checks that each member has without registering them: the verdict of the
// failure detector and, from level 7 on, that of the voters (see reportProcess). A
// member that has registered a check of the latter's name below level 7 keeps it in
// its place until it deregisters it.
const (
	gossipCheck  = "gossip"
	processCheck = "process"
)

// hasBuiltIn reports whether a check of the member is built in.
func (k *member) hasBuiltIn(l levels, name string) bool {
	return name == gossipCheck || name == processCheck && l.agreed >= wire.LevelProcess && k.checks[name] == nil
}

// builtIn returns the built-in checks of the member.
func (k *member) builtIn(l levels) (checks []*check) {
	for _, name := range []string{gossipCheck, processCheck} {
		if k.hasBuiltIn(l, name) {
			checks = append(checks, &check{member: k, name: name})
		}
	}
	return checks
}

// listBuiltIn puts the built-in checks of a registered member among those that are listed.
func (k *member) listBuiltIn(m *Machine) {
	if k.isRegistered() {
		for _, c := range k.builtIn(m.levels) {
			m.checks.ReplaceOrInsert(c)
		}
	}
}

// builtInState returns the state of a built-in check.
func (k *member) builtInState(name string) wire.CheckState {
	if name == gossipCheck && k.silent || name == processCheck && k.crashed {
		return wire.CheckState_CRITICAL
	}
	return wire.CheckState_PASSING
}

func (c *check) deadline() int64 { return after(c.refreshed, c.ttl) }

func byMember(a, b *check) int {
	return cmp.Or(cmp.Compare(a.member.id, b.member.id), cmp.Compare(a.name, b.name))
}

// byExpiry orders the checks that can expire, by deadline.
func byExpiry(a, b *check) int {
	return cmp.Or(cmp.Compare(a.deadline(), b.deadline()), byMember(a, b))
}

// schedule puts the check where its deadline belongs, or removes it if it cannot
// expire.
func (m *Machine) schedule(c *check) {
	due := c.ttl > 0 && c.status != wire.CheckState_CRITICAL
	switch {
	case due && c.at == 0:
		m.checkups.Push(c)
	case due:
		m.checkups.Fix(c)
	case c.at != 0:
		m.checkups.Remove(c)
	}
}

func (m *Machine) setCheck(inc *incarnation, c *wire.SetCheck) *wire.Reply {
	member := m.members[inc.member]
	if r := cmp.Or(m.checkCheckName(member, c.Name), m.checkCheckState(c.State)); r != nil {
		return r
	}
	if c.Register && c.Ttl != 0 {
		if r := m.checkTTL(c.Ttl); r != nil {
			return r
		}
	}
	known := member.checks[c.Name]
	switch {
	case known == nil && !c.Register:
		return m.refuse(wire.Code_CHECK_UNKNOWN, c.Name)
	case known == nil:
		forClient := c.ForClient && m.hasBounds()
		if r := m.mayHaveCheck(member, forClient); r != nil {
			return r
		}
		known = &check{member: member, name: c.Name, status: c.State, forClient: forClient}
		m.addCheck(known)
	}
	failed := c.State == wire.CheckState_CRITICAL && known.status != c.State
	if c.Register && known.ttl != c.Ttl {
		known.ttl, m.listed = c.Ttl, true
	}
	m.listed = m.listed || known.status != c.State
	known.status, known.refreshed = c.State, m.now
	m.schedule(known)
	m.dirty.put(known.key(), known)
	if failed {
		m.endSessions(m.dependents(known), fact.CheckFailed, shortened{})
	}
	r := m.reply(wire.Code_OK)
	r.Checks = []*wire.CheckTerms{m.terms(known)}
	return r
}

// mayHaveCheck refuses a member that has too many checks. From level 6 on those of its program
// and those for clients of that count apart.
func (m *Machine) mayHaveCheck(k *member, forClient bool) *wire.Reply {
	n := len(k.checks)
	switch {
	case forClient:
		n = k.forClients
	case m.hasBounds():
		n -= k.forClients
	}
	if n >= MaxChecks {
		return m.refuse(wire.Code_BUSY, "the member has too many checks; deregister some")
	}
	return nil
}

func (m *Machine) terms(c *check) *wire.CheckTerms {
	terms := &wire.CheckTerms{Name: c.name, Ttl: c.ttl}
	if c.ttl > 0 && c.status != wire.CheckState_CRITICAL {
		terms.Remaining = c.deadline() - m.now
	}
	return terms
}

func (m *Machine) dropCheck(inc *incarnation, c *wire.DropCheck) *wire.Reply {
	member := m.members[inc.member]
	if r := m.checkCheckName(member, c.Name); r != nil {
		return r
	}
	known := member.checks[c.Name]
	if known == nil {
		return m.refuse(wire.Code_CHECK_UNKNOWN, c.Name)
	}
	m.removeCheck(known)
	member.listBuiltIn(m)
	m.endSessions(m.dependents(known), fact.CheckFailed, shortened{})
	return m.reply(wire.Code_OK)
}

func (m *Machine) addCheck(c *check) {
	c.member.checks[c.name] = c
	if c.forClient {
		c.member.forClients++
	}
	m.checks.ReplaceOrInsert(c)
	m.listed = true
}

func (m *Machine) removeCheck(c *check) {
	delete(c.member.checks, c.name)
	if c.forClient {
		c.member.forClients--
	}
	m.checks.Delete(c)
	if c.at != 0 {
		m.checkups.Remove(c)
	}
	m.dirty.drop(c.key())
	m.listed = true
}

// reportGossip records the verdict of the leader's failure detector on a process.
// It does not apply to a later start of the member, which has proved by
// registering that it is alive, and the view of an earlier leader may be stale.
//
// Until MinSilence after the last renewal of a registered process its death is not
// recorded, so that a holder knows by its own clock when that can happen first. The
// reply says how long that still takes.
func (m *Machine) reportGossip(c *wire.ReportGossip) *wire.Reply {
	k := m.known(c.Member)
	if k == nil || !k.isRegistered() || c.Term != m.term || c.Boot < k.boot || k.silent == !c.Alive {
		return m.reply(wire.Code_OK)
	}
	if inc := m.process(k); inc != nil && !c.Alive {
		if r := m.reply(wire.Code_OK); m.now < after(inc.renewed, MinSilence) {
			r.Delay = after(inc.renewed, MinSilence) - m.now
			return r
		}
	}
	m.silence(k, !c.Alive)
	if k.silent {
		m.endSessions(m.dependents(&check{member: k, name: gossipCheck}), fact.CheckFailed, shortened{})
	}
	return m.reply(wire.Code_OK)
}

// reportProcess records the verdict of a majority of the voters that a registered
// process has crashed: its host closed its connections and refuses others. Unlike a
// death that gossip shows it counts at once, whatever the last renewal: a process that
// has crashed holds nothing. If the verdict is wrong, a holder that depends on the
// check can be overtaken before its deadline.
//
// One that has deregistered has ended on purpose, and what is left of it is meant to
// stay. What an earlier start did says nothing of a later one, which passes by
// registering; and only the leader of the present term has counted the voters.
func reportProcess(m *Machine, c *wire.ReportProcess) *wire.Reply {
	k := m.known(c.Member)
	if k == nil || c.Term != m.term || c.Boot != k.boot || k.crashed == c.Crashed {
		return m.reply(wire.Code_OK)
	}
	if inc := m.process(k); inc == nil || inc.member != k.id {
		return m.reply(wire.Code_OK)
	}
	k.crashed = c.Crashed
	m.memberChanged(k)
	if k.crashed && k.hasBuiltIn(m.levels, processCheck) {
		m.endSessions(m.dependents(&check{member: k, name: processCheck}), fact.CheckFailed, shortened{})
	}
	return m.reply(wire.Code_OK)
}

// overdueChecks makes the checks whose TTL has expired critical and returns them
// by deadline, as many as a portion has room for.
func (m *Machine) overdueChecks() []*check {
	var overdue []*check
	room := portion{size: m.split}
	for c := m.checkups.First(); c != nil && c.deadline() <= m.now; c = m.checkups.First() {
		n := 1
		if on := c.member.dependents[c.name]; on != nil {
			n += on.Len
		}
		if !room.fits(n) {
			break
		}
		m.checkups.Pop()
		c.status, m.listed = wire.CheckState_CRITICAL, true
		m.dirty.put(c.key(), c)
		overdue = append(overdue, c)
	}
	return overdue
}

// refreshChecks renews the TTL of each check.
func (m *Machine) refreshChecks() {
	checks := m.checkups.All()
	slices.SortFunc(checks, byMember)
	for _, c := range checks {
		c.refreshed = m.now
		m.checkups.Fix(c)
		m.dirty.put(c.key(), c)
	}
}

// dependents returns the sessions that depend on one of the checks, by creation.
func (m *Machine) dependents(checks ...*check) []*session {
	var found []*session
	for _, c := range checks {
		if on := c.member.dependents[c.name]; on != nil {
			for d := range on.All(&m.visits) {
				found = append(found, d.session)
			}
		}
	}
	slices.SortFunc(found, byCreation)
	return slices.Compact(found)
}

// CrashMatters reports whether a session depends on the check process of a member: what that is by then is not recorded of a process whose registration
// has expired, which may have ended on purpose.
func CrashMatters(m *Machine, member uint64) bool {
	k := m.known(member)
	return k != nil && k.dependents[processCheck] != nil
}

// healthy refuses checks that the member does not have or that are critical.
func (m *Machine) healthy(member uint64, checks []string) *wire.Reply {
	k := m.members[member]
	for _, name := range checks {
		c := k.checks[name]
		switch {
		case k.hasBuiltIn(m.levels, name) && k.builtInState(name) != wire.CheckState_CRITICAL:
		case k.hasBuiltIn(m.levels, name):
			return m.refuse(wire.Code_CHECK_CRITICAL, name)
		case c == nil:
			return m.refuse(wire.Code_CHECK_UNKNOWN, name)
		case c.status == wire.CheckState_CRITICAL:
			return m.refuse(wire.Code_CHECK_CRITICAL, name)
		}
	}
	return nil
}

func (m *Machine) checkCheckName(k *member, name string) *wire.Reply {
	if k.hasBuiltIn(m.levels, name) {
		return m.refuse(wire.Code_INVALID, "invalid check name: "+name+" is built in; choose another")
	}
	return m.checkName(name)
}

func (m *Machine) checkCheckState(state wire.CheckState) *wire.Reply {
	switch state {
	case wire.CheckState_PASSING, wire.CheckState_WARNING, wire.CheckState_CRITICAL:
		return nil
	}
	return m.refuse(wire.Code_INVALID, "unknown check state")
}
