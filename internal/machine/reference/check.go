package reference

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Checks.

// Check is a check of a member.
type Check struct {
	Member         uint64
	Name           string
	state          wire.CheckState
	ttl, refreshed int64
	forClient      bool
}

// given reports whether a member has a check without registering it.
func given(r *Model, member uint64, name string) bool {
	return name == "gossip" || name == "process" && r.Level >= wire.LevelProcess && r.check(member, name) == nil
}

func (r *Model) check(member uint64, name string) *Check {
	for _, c := range r.Checks {
		if c.Member == member && c.Name == name {
			return c
		}
	}
	return nil
}

// lookAt refuses checks that no session can depend on.
func (r *Model) lookAt(member uint64, names []string) *wire.Reply {
	for _, name := range names {
		c := r.check(member, name)
		of := r.Member(member)
		switch {
		case name == "gossip" && of.silent, name == "process" && given(r, member, name) && of.crashed:
			return &wire.Reply{Code: wire.Code_CHECK_CRITICAL, Detail: name}
		case given(r, member, name):
		case c == nil:
			return &wire.Reply{Code: wire.Code_CHECK_UNKNOWN, Detail: name}
		case c.state == wire.CheckState_CRITICAL:
			return &wire.Reply{Code: wire.Code_CHECK_CRITICAL, Detail: name}
		}
	}
	return nil
}

func (r *Model) setCheck(member uint64, c *wire.SetCheck) *wire.Reply {
	bad := checkName(c.Name)
	switch {
	case bad != nil:
		return bad
	case given(r, member, c.Name) || c.State < 0 || c.State > wire.CheckState_CRITICAL:
		return answer(wire.Code_INVALID)
	case c.Register && c.Ttl != 0 && (c.Ttl < MinTTL || c.Ttl > MaxTTL):
		return answer(wire.Code_INVALID)
	}
	old := r.check(member, c.Name)
	if old == nil {
		return r.newCheck(member, c)
	}
	fell := c.State == wire.CheckState_CRITICAL && old.state != wire.CheckState_CRITICAL
	old.state, old.refreshed = c.State, r.Now
	if c.Register {
		old.ttl = c.Ttl
	}
	if fell {
		r.end(r.depending(nil, []Check{*old}), fact.CheckFailed, shortened{})
	}
	return &wire.Reply{Code: wire.Code_OK, Checks: []*wire.CheckTerms{r.left(member, c.Name)}}
}

// left says how long a check lasts, at least.
func (r *Model) left(member uint64, name string) *wire.CheckTerms {
	c := r.check(member, name)
	switch {
	case c == nil || c.ttl == 0:
		return &wire.CheckTerms{Name: name}
	case c.state == wire.CheckState_CRITICAL:
		return &wire.CheckTerms{Name: name, Ttl: c.ttl}
	}
	return &wire.CheckTerms{Name: name, Ttl: c.ttl, Remaining: later(c.refreshed, c.ttl) - r.Now}
}

func (r *Model) newCheck(member uint64, c *wire.SetCheck) *wire.Reply {
	n, forClient := 0, c.ForClient && r.bounded()
	for _, o := range r.Checks {
		if o.Member == member && o.forClient == forClient {
			n++
		}
	}
	switch {
	case !c.Register:
		return &wire.Reply{Code: wire.Code_CHECK_UNKNOWN, Detail: c.Name}
	case n >= MaxChecks:
		return answer(wire.Code_BUSY)
	}
	r.Checks = append(r.Checks, &Check{Member: member, Name: c.Name, state: c.State, ttl: c.Ttl, refreshed: r.Now, forClient: forClient})
	return &wire.Reply{Code: wire.Code_OK, Checks: []*wire.CheckTerms{r.left(member, c.Name)}}
}

func (r *Model) dropCheck(member uint64, c *wire.DropCheck) *wire.Reply {
	if bad := checkName(c.Name); bad != nil {
		return bad
	}
	old := r.check(member, c.Name)
	switch {
	case given(r, member, c.Name):
		return answer(wire.Code_INVALID)
	case old == nil:
		return &wire.Reply{Code: wire.Code_CHECK_UNKNOWN, Detail: c.Name}
	}
	r.Checks = slices.DeleteFunc(r.Checks, func(o *Check) bool { return o == old })
	r.end(r.depending(nil, []Check{*old}), fact.CheckFailed, shortened{})
	return answer(wire.Code_OK)
}

func (r *Model) gossip(c *wire.ReportGossip) *wire.Reply {
	m := r.Member(c.Member)
	if m == nil || m.last == (wire.ID{}) || c.Boot < m.boot || c.Term != r.term {
		return answer(wire.Code_OK)
	}
	if inc := r.running(m); inc != nil && !m.silent && !c.Alive {
		if may := later(inc.renewed, MinSilence); r.Now < may {
			return &wire.Reply{Code: wire.Code_OK, Delay: may - r.Now}
		}
	}
	was := m.silent
	if m.silent != !c.Alive {
		if m.since = 0; !c.Alive {
			m.since = max(0, r.Now-MinSilence)
		}
	}
	if m.silent = !c.Alive; m.silent && !was {
		r.end(r.depending(nil, []Check{{Member: c.Member, Name: "gossip"}}), fact.CheckFailed, shortened{})
	}
	return answer(wire.Code_OK)
}

// crashed records that a majority of the voters takes a process for crashed, or not any more.
func crashed(r *Model, c *wire.ReportProcess) *wire.Reply {
	m := r.Member(c.Member)
	if m == nil || m.Removed || r.term != c.Term || m.boot != c.Boot {
		return answer(wire.Code_OK)
	}
	if inc := r.running(m); inc == nil || inc.Member != m.ID {
		return answer(wire.Code_OK)
	}
	fell := c.Crashed && !m.crashed
	if m.crashed = c.Crashed; fell && r.check(m.ID, "process") == nil {
		r.end(r.depending(nil, []Check{{Member: m.ID, Name: "process"}}), fact.CheckFailed, shortened{})
	}
	return answer(wire.Code_OK)
}

// staleChecks makes the checks whose TTL has expired critical.
func (r *Model) staleChecks() (stale []Check) {
	var late []*Check
	for _, c := range r.Checks {
		if c.ttl > 0 && c.state != wire.CheckState_CRITICAL && later(c.refreshed, c.ttl) <= r.Now {
			late = append(late, c)
		}
	}
	slices.SortFunc(late, func(a, b *Check) int {
		return cmp.Or(cmp.Compare(later(a.refreshed, a.ttl), later(b.refreshed, b.ttl)), cmp.Compare(a.Member, b.Member), cmp.Compare(a.Name, b.Name))
	})
	for _, c := range portion(late, r.quota, func(c *Check) int { return 1 + len(r.depending(nil, []Check{*c})) }) {
		c.state = wire.CheckState_CRITICAL
		stale = append(stale, *c)
	}
	return stale
}

// depending returns the sessions that depend on any of the checks and are not listed
// yet, by creation.
func (r *Model) depending(listed []*Session, checks []Check) []*Session {
	var on []*Session
	for _, s := range r.Sessions {
		named := func(c Check) bool { return c.Member == s.Member && slices.Contains(s.Checks, c.Name) }
		if slices.ContainsFunc(checks, named) && !slices.Contains(listed, s) {
			on = append(on, s)
		}
	}
	slices.SortFunc(on, byAge)
	return on
}
