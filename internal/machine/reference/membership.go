package reference

import (
	"cmp"
	"math"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Members and the group's settings.

// Member is what is kept of a member forever.
type Member struct {
	ID              uint64
	Removed         bool
	boot            uint64
	attempt         uint32
	last            wire.ID // zero: it has never registered
	silent, crashed bool
	since           int64
	token           string
	key             string
	level           uint32
	name, advertise string
	ephemeral       bool
}

func (r *Model) Member(id uint64) *Member {
	for i := range r.members {
		if r.members[i].ID == id {
			return &r.members[i]
		}
	}
	return nil
}

func (r *Model) setConfig(c *wire.SetGroupConfig) *wire.Reply {
	for _, d := range []int64{c.ReplaceAfter, c.RemoveAfter} {
		if d != 0 && (d < 5*second || d > 365*24*3600*second) {
			return answer(wire.Code_INVALID)
		}
	}
	if !slices.Contains([]uint32{1, 3, 5, 7}, c.Voters) {
		return answer(wire.Code_INVALID)
	}
	r.Config = fact.GroupConfig{Voters: c.Voters, ReplaceAfter: c.ReplaceAfter, RemoveAfter: c.RemoveAfter}
	return answer(wire.Code_OK)
}

// room tells whether another member can be admitted.
func (r *Model) room() bool {
	n, fresh := 0, 0
	for _, m := range r.members {
		if !m.Removed {
			n++
			if m.last == (wire.ID{}) {
				fresh++
			}
		}
	}
	return n < MaxMembers && fresh < MaxUnregistered
}

func (r *Model) admit(c *wire.AdmitMember) *wire.Reply {
	if c.Name != "" {
		if bad := checkName(c.Name); bad != nil {
			return bad
		}
	}
	if c.Member == 0 || len(c.Key) != 32 || len(c.Advertise) > 260 {
		return answer(wire.Code_INVALID)
	}
	m := r.Member(c.Member)
	if m == nil {
		if !r.room() {
			return answer(wire.Code_BUSY)
		}
		r.members = append(r.members, Member{ID: c.Member, since: r.Now})
		m = r.Member(c.Member)
	} else if m.Removed {
		return answer(wire.Code_REMOVED)
	} else if m.key != "" && m.key != string(c.Key) {
		return answer(wire.Code_INVALID)
	} else if m.last != (wire.ID{}) {
		return answer(wire.Code_INVALID)
	}
	m.key, m.name, m.advertise, m.ephemeral = string(c.Key), c.Name, c.Advertise, c.Ephemeral
	return answer(wire.Code_OK)
}

func (r *Model) removeMember(inc *Incarnation, c *wire.RemoveMember) *wire.Reply {
	id := c.Member
	if id == 0 {
		id = inc.Member
	}
	m := r.Member(id)
	switch {
	case m == nil && !r.room():
		return answer(wire.Code_BUSY)
	case m != nil && m.Removed:
		return answer(wire.Code_OK)
	}
	remaining := 0
	for _, voter := range c.Voters {
		if voter != id && !slices.Contains(r.Removed(), voter) {
			remaining++
		}
	}
	for _, m := range r.Members() {
		if m.ID != id && m.Registered && !m.Silent {
			remaining++
		}
	}
	if remaining == 0 {
		return answer(wire.Code_INVALID)
	}
	if m == nil {
		r.members = append(r.members, Member{ID: id})
	}
	removing{r}.expel(id)
	return answer(wire.Code_OK)
}

// removing is the rules of the removal of members.
type removing struct{ *Model }

// expel removes members, with all their sessions, unbound ones included, and their checks. All their sessions end before anything of
// theirs is granted.
func (x removing) expel(ids ...uint64) {
	var all shortened
	for _, id := range ids {
		all.add(x.strike(id))
	}
	if len(ids) > 1 {
		jobs(x).reached("members removed together")
	}
	x.end(nil, fact.MemberRemoved, all)
	for _, id := range ids {
		x.clear(id)
	}
}

// strike ends the sessions of a member without releasing anything yet.
func (x removing) strike(id uint64) (lost shortened) {
	m := x.Member(id)
	m.Removed, m.since, m.crashed = true, 0, false
	if m.last == (wire.ID{}) {
		m.since = x.Now
		var never []Member
		for _, o := range x.members {
			if o.ID != id && o.Removed && o.last == (wire.ID{}) {
				never = append(never, o)
			}
		}
		if len(never) >= MaxForgettable {
			first := slices.MinFunc(never, func(a, b Member) int { return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.ID, b.ID)) })
			x.members = slices.DeleteFunc(x.members, func(o Member) bool { return o.ID == first.ID })
		}
	}
	if inc := x.runningOf(id); inc != nil {
		lost = x.dropPlaces(inc.ID)
	}
	x.kill(x.ofMember(id), fact.MemberRemoved)
	return lost
}

// clear ends what is left of a member whose sessions have ended.
func (x removing) clear(id uint64) {
	x.Checks = slices.DeleteFunc(x.Checks, func(c *Check) bool { return c.Member == id })
	if inc := x.runningOf(id); inc != nil {
		x.drop(inc.ID, fact.MemberRemoved)
	}
}

// runningOf is running of a member that may be forgotten, or whose process's ID may be another member's by now: nil.
func (x removing) runningOf(id uint64) *Incarnation {
	if m := x.Member(id); m != nil {
		if inc := x.running(m); inc != nil && inc.Member == id {
			return inc
		}
	}
	return nil
}

// lateMember returns the member that has been silent for too long, or admitted for too long
// without a registration; 0: none.
func (x removing) lateMember() uint64 {
	var due []fact.MemberRecord
	running, when := false, make(map[uint64]int64)
	for _, m := range x.Members() {
		running = running || m.Registered && !m.Silent
		at := int64(math.MaxInt64)
		switch config := x.Config; {
		case !m.Registered && len(m.Key) > 0:
			at = later(m.Since, 600*second)
		case m.Registered && m.Silent:
			if config.RemoveAfter != 0 {
				at = later(m.Since, config.RemoveAfter)
			}
			if m.Ephemeral && config.ReplaceAfter != 0 {
				at = min(at, later(m.Since, config.ReplaceAfter))
			}
		}
		if when[m.ID] = at; at <= x.Now && at < math.MaxInt64 {
			due = append(due, m)
		}
	}
	if !running || len(due) == 0 || x.Groups.Number != 0 {
		return 0
	}
	return slices.MinFunc(due, func(a, b fact.MemberRecord) int {
		return cmp.Or(cmp.Compare(when[a.ID], when[b.ID]), cmp.Compare(a.ID, b.ID))
	}).ID
}

// Members returns those that were not removed, by ID.
func (r *Model) Members() (list []fact.MemberRecord) {
	for _, m := range r.members {
		if !m.Removed {
			list = append(list, fact.MemberRecord{
				ID: m.ID, Name: m.name, Advertise: m.advertise, Key: []byte(m.key),
				Ephemeral: m.ephemeral, Registered: m.last != wire.ID{}, Level: atLeast(m.level), Silent: m.silent, Since: m.since,
			})
		}
	}
	slices.SortFunc(list, func(a, b fact.MemberRecord) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Removed returns the members that have been removed, ascending.
func (r *Model) Removed() (removed []uint64) {
	for _, m := range r.members {
		if m.Removed {
			removed = append(removed, m.ID)
		}
	}
	slices.Sort(removed)
	return removed
}
