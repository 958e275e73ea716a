package reference

import (
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Further groups, in the default one, and the machine of one of them.

// Group is a further group.
type Group struct {
	Number  uint32
	Name    string
	created uint64
	level   uint32
	fences  uint64
	wanted  uint32
	voters  []uint64
	standby []uint64
	members []fact.MemberRecord
}

// Groups is the further groups.
type Groups struct {
	List    []Group
	Created uint32
	fences  uint64

	// Of a further group; Number is 0 in the default one.
	Number uint32
	Index  uint64
	voters []uint64
	Sealed bool
}

// groups is the rules of groups.
type groups struct{ *Model }

// Further makes a model that of a further group that has just been created.
func Further(r *Model, number uint32, created uint64, level uint32, fences uint64, wanted uint32, voters []uint64, members []fact.MemberRecord) {
	r.Level, r.Granted, r.Config = level, fences, fact.GroupConfig{Voters: wanted}
	r.Groups = Groups{Number: number, Index: created, voters: voters}
	for _, m := range members {
		r.members = append(r.members, Member{ID: m.ID, key: string(m.Key), name: m.Name, advertise: m.Advertise, ephemeral: m.Ephemeral, level: m.Level})
	}
}

// Directory is the further groups as the machine shows them.
func Directory(r *Model) *fact.Directory {
	d := &fact.Directory{Created: r.Groups.Created}
	for _, g := range r.Groups.List {
		d.Groups = append(d.Groups, &fact.GroupRecord{
			Number: g.Number, Name: g.Name, Created: g.created, Level: g.level, Fences: g.fences, Wanted: g.wanted,
			Voters: g.voters, Standbys: g.standby, Members: g.members,
		})
	}
	return d
}

// Following is what a further group has of the default one.
func Following(r *Model) *fact.Following {
	g := &r.Groups
	if g.Number == 0 {
		return nil
	}
	f := &fact.Following{Group: g.Number, Index: g.Index, Voters: g.voters, Sealed: g.Sealed}
	if g.Sealed {
		f.Fences = r.Granted
	}
	return f
}

// mayRegister returns the refusal of a registration by a further group, or nil.
func (x groups) mayRegister(member uint64) *wire.Reply {
	switch g := x.Groups; {
	case g.Number == 0:
		return nil
	case g.Sealed:
		return answer(wire.Code_GROUP_DELETED)
	case x.Member(member) == nil:
		return answer(wire.Code_BUSY)
	}
	return nil
}

// decides tells whether only the default group does that.
func decides(c *wire.Command) bool {
	return c.GetRemoveMember() != nil || c.GetAdmitMember() != nil || c.GetSetGroupConfig() != nil || c.GetRaiseLevel() != nil ||
		c.GetCreateGroup() != nil || c.GetDropGroup() != nil
}

// refused returns the refusal of a command by a further group, or nil.
func (x groups) refused(c *wire.Command) *wire.Reply {
	switch {
	case x.Groups.Number == 0:
		return nil
	case decides(c):
		return answer(wire.Code_INVALID)
	case c.GetSealGroup() != nil:
		return nil
	case x.Groups.Sealed:
		jobs(x).reached("groups: a command behind the seal")
		return answer(wire.Code_GROUP_DELETED)
	}
	return nil
}

// command executes a command about groups, or another one.
func (x groups) command(t wire.Ticket, c *wire.Command) *wire.Reply {
	further := x.Groups.Number != 0
	switch op := c.Op.(type) {
	case *wire.Command_CreateGroup:
		if x.Level >= wire.LevelGroups {
			return x.create(op.CreateGroup)
		}
	case *wire.Command_DropGroup:
		if x.Level >= wire.LevelGroups {
			return x.drop(op.DropGroup)
		}
	case *wire.Command_FollowMembers:
		if further {
			return x.follow(op.FollowMembers)
		}
	case *wire.Command_SealGroup:
		if further {
			return x.seal(op.SealGroup)
		}
	default:
		return shards(x).command(t, c)
	}
	return answer(wire.Code_INVALID)
}

func (x groups) create(c *wire.CreateGroup) *wire.Reply {
	if bad := checkName(c.Name); bad != nil {
		return bad
	}
	g := &x.Groups
	if slices.ContainsFunc(g.List, func(o Group) bool { return o.Name == c.Name }) {
		return answer(wire.Code_OK)
	}
	if len(g.List) >= MaxGroups {
		jobs(x).reached("groups: too many")
		return answer(wire.Code_BUSY)
	}
	if g.fences >= 1<<48-1 {
		return answer(wire.Code_TOO_LARGE)
	}
	all := slices.Concat(c.Voters, c.Standbys)
	if len(c.Voters) == 0 || len(c.Voters) > MaxMembers || len(c.Standbys) > MaxMembers || !increasing(c.Voters) || !increasing(c.Standbys) {
		return answer(wire.Code_INVALID)
	}
	for _, id := range c.Voters {
		if slices.Contains(c.Standbys, id) {
			return answer(wire.Code_INVALID)
		}
	}
	for _, id := range all {
		if m := x.Member(id); m == nil || m.Removed {
			jobs(x).reached("groups: a founder that is no member")
			return answer(wire.Code_BUSY)
		}
	}
	live := 0
	for _, id := range c.Voters {
		if m := x.Member(id); m.last != (wire.ID{}) && !m.silent {
			live++
		}
	}
	if 2*live <= len(c.Voters) {
		jobs(x).reached("groups: too few founders alive")
		return answer(wire.Code_BUSY)
	}
	jobs(x).reached("groups: created")
	g.Created++
	g.List = append(g.List, Group{
		Number: g.Created, Name: c.Name, created: x.index, level: atLeast(x.Level), fences: g.fences, wanted: x.Config.Voters,
		voters: c.Voters, standby: c.Standbys, members: x.Members(),
	})
	return answer(wire.Code_OK)
}

func (x groups) drop(c *wire.DropGroup) *wire.Reply {
	g := &x.Groups
	if !slices.ContainsFunc(g.List, func(o Group) bool { return o.Number == c.Number }) {
		return answer(wire.Code_OK)
	}
	if c.Fences > 1<<48-1 {
		return answer(wire.Code_INVALID)
	}
	jobs(x).reached("groups: dropped")
	g.List = slices.DeleteFunc(slices.Clone(g.List), func(o Group) bool { return o.Number == c.Number })
	g.fences = max(g.fences, c.Fences)
	return answer(wire.Code_OK)
}

func (x groups) follow(c *wire.FollowMembers) *wire.Reply {
	if c.Index <= x.Groups.Index {
		return answer(wire.Code_OK)
	}
	var ids []uint64
	for _, m := range c.Members {
		if len(m.Key) != 0 && len(m.Key) != 32 || len(m.Name) > MaxName || len(m.Advertise) > 260 {
			return answer(wire.Code_INVALID)
		}
		ids = append(ids, m.Member)
	}
	if len(ids) == 0 || len(ids) > MaxMembers || !increasing(ids) || !increasing(c.Voters) || !slices.Contains([]uint32{0, 1, 3, 5, 7}, c.Wanted) {
		return answer(wire.Code_INVALID)
	}
	for _, v := range c.Voters {
		if !slices.Contains(ids, v) {
			return answer(wire.Code_INVALID)
		}
	}
	jobs(x).reached("groups: followed")
	x.Groups.Index, x.Groups.voters, x.Config = c.Index, c.Voters, fact.GroupConfig{Voters: c.Wanted}
	x.Level = max(atLeast(x.Level), c.Level)
	for _, of := range c.Members {
		if x.Member(of.Member) == nil {
			x.members = append(x.members, Member{ID: of.Member})
		}
		if m := x.Member(of.Member); !m.Removed {
			m.key, m.name, m.advertise, m.ephemeral = string(of.Key), of.Name, of.Advertise, of.Ephemeral
			if m.last == (wire.ID{}) {
				m.level = of.FeatureLevel
			}
		}
	}
	var removed []uint64
	for _, m := range x.Members() {
		if !slices.Contains(ids, m.ID) {
			jobs(x).reached("groups: a member removed")
			removed = append(removed, m.ID)
		}
	}
	if x.Level >= wire.LevelTogether {
		removing(x).expel(removed...)
		return answer(wire.Code_OK)
	}
	for _, id := range removed {
		removing(x).expel(id)
	}
	return answer(wire.Code_OK)
}

func (x groups) seal(c *wire.SealGroup) *wire.Reply {
	used := len(x.Locks)+len(x.Semaphores)+len(x.Jobs)+len(x.ShardSets)+len(x.keys.entries)+len(x.delays) > 0
	if !x.Groups.Sealed && used && !c.Force {
		jobs(x).reached("groups: in use")
		return answer(wire.Code_LOCKED)
	}
	jobs(x).reached("groups: sealed")
	x.Groups.Sealed = true
	return answer(wire.Code_OK)
}

func increasing(ids []uint64) bool {
	for i, id := range ids {
		if id == 0 || i > 0 && id <= ids[i-1] {
			return false
		}
	}
	return true
}
