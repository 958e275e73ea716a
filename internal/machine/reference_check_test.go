package machine

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// Checks, DESIGN 4.4, as the reference reads them.

type refCheck struct {
	member         uint64
	name           string
	state          wire.CheckState
	ttl, refreshed int64
}

func (r *reference) check(member uint64, name string) *refCheck {
	for _, c := range r.checks {
		if c.member == member && c.name == name {
			return c
		}
	}
	return nil
}

// lookAt refuses checks on which no session can be opened or attached.
func (r *reference) lookAt(member uint64, names []string) *wire.Reply {
	for _, name := range names {
		c := r.check(member, name)
		switch {
		case name == "gossip" && r.member(member).silent:
			return refCode(wire.Code_CHECK_CRITICAL)
		case name == "gossip":
		case c == nil:
			return refCode(wire.Code_CHECK_UNKNOWN)
		case c.state == wire.CheckState_CRITICAL:
			return refCode(wire.Code_CHECK_CRITICAL)
		}
	}
	return nil
}

func (r *reference) setCheck(member uint64, c *wire.SetCheck) *wire.Reply {
	bad := refName(c.Name)
	switch {
	case bad != nil:
		return bad
	case c.Name == "gossip" || c.State < 0 || c.State > wire.CheckState_CRITICAL:
		return refCode(wire.Code_INVALID)
	case c.Register && c.Ttl != 0 && (c.Ttl < MinTTL || c.Ttl > MaxTTL):
		return refCode(wire.Code_INVALID)
	}
	old := r.check(member, c.Name)
	if old == nil {
		return r.newCheck(member, c)
	}
	fell := c.State == wire.CheckState_CRITICAL && old.state != wire.CheckState_CRITICAL
	old.state, old.refreshed = c.State, r.now
	if c.Register {
		old.ttl = c.Ttl
	}
	if fell {
		r.end(r.depending(nil, []refCheck{*old}), true)
	}
	return refCode(wire.Code_OK)
}

func (r *reference) newCheck(member uint64, c *wire.SetCheck) *wire.Reply {
	n := 0
	for _, o := range r.checks {
		if o.member == member {
			n++
		}
	}
	switch {
	case !c.Register:
		return refCode(wire.Code_CHECK_UNKNOWN)
	case n >= MaxChecks:
		return refCode(wire.Code_TOO_LARGE)
	}
	r.checks = append(r.checks, &refCheck{member: member, name: c.Name, state: c.State, ttl: c.Ttl, refreshed: r.now})
	return refCode(wire.Code_OK)
}

func (r *reference) dropCheck(member uint64, c *wire.DropCheck) *wire.Reply {
	if bad := refName(c.Name); bad != nil {
		return bad
	}
	old := r.check(member, c.Name)
	switch {
	case c.Name == "gossip":
		return refCode(wire.Code_INVALID)
	case old == nil:
		return refCode(wire.Code_CHECK_UNKNOWN)
	}
	r.checks = slices.DeleteFunc(r.checks, func(o *refCheck) bool { return o == old })
	r.end(r.depending(nil, []refCheck{*old}), true)
	return refCode(wire.Code_OK)
}

// refTerm is the term of all that the reference applies.
const refTerm = 1

func (r *reference) gossip(c *wire.ReportGossip) *wire.Reply {
	m := r.member(c.Member)
	if m == nil || c.Boot < m.boot || c.Term != refTerm {
		return refCode(wire.Code_OK)
	}
	was := m.silent
	if m.silent = !c.Alive; m.silent && !was {
		r.end(r.depending(nil, []refCheck{{member: c.Member, name: "gossip"}}), true)
	}
	return refCode(wire.Code_OK)
}

// staleChecks makes the checks critical that were not refreshed in time.
func (r *reference) staleChecks() (stale []refCheck) {
	for _, c := range r.checks {
		if c.ttl > 0 && c.state != wire.CheckState_CRITICAL && refAdd(c.refreshed, c.ttl) <= r.now {
			c.state = wire.CheckState_CRITICAL
			stale = append(stale, *c)
		}
	}
	return stale
}

// depending returns the sessions on any of the checks, by creation, but for
// those that are listed already.
func (r *reference) depending(listed []*refSession, checks []refCheck) []*refSession {
	var on []*refSession
	for _, s := range r.sessions {
		named := func(c refCheck) bool { return c.member == s.member && slices.Contains(s.checks, c.name) }
		if slices.ContainsFunc(checks, named) && !slices.Contains(listed, s) {
			on = append(on, s)
		}
	}
	slices.SortFunc(on, byAge)
	return on
}
