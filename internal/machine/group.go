package machine

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// The further groups. The default group's machine lists them, with all that each begins with; each has a
// machine of its own, which follows the members of the default group (following.go).
//
// A group is deleted in two steps. First it is sealed, in its own log: it refuses every command from then on,
// so what it has granted is known. Then the default group drops it, and no fence that a later group grants is
// among those of the dropped one, whatever its name. Numbers are never used again.

const (
	// MaxGroups bounds the further groups: each has a log, a leader and a loop on every member.
	MaxGroups = 1_000
)

// groups is the further groups, in the machine of the default one.
type groups struct {
	byNumber  map[uint32]*furtherGroup
	byName    map[string]*furtherGroup
	created   uint32          // so far
	fences    uint64          // behind which those of the next group begin: the most that a deleted group has granted
	directory *fact.Directory // never changed in place; nil: see Machine.Directory
}

func newGroups() groups {
	return groups{byNumber: make(map[uint32]*furtherGroup), byName: make(map[string]*furtherGroup)}
}

func (g *groups) add(f *furtherGroup) {
	g.byNumber[f.Number], g.byName[f.Name] = f, f
	g.directory = nil
}

func (g *groups) remove(f *furtherGroup) {
	delete(g.byNumber, f.Number)
	delete(g.byName, f.Name)
	g.directory = nil
}

// seed returns the groups of a new default group of that epoch. Each kept one has a log in the directory of the new group's first
// member, and nowhere else: no other member begins it. The epoch is for another recovery, from the directory of a member
// that has not received the group's state.
func (g *groups) seed(epoch uint32, keep func(number uint32) bool) groups {
	seed := newGroups()
	seed.created = g.created
	for _, f := range g.byNumber { // order: of a map
		if keep != nil && keep(f.Number) {
			kept := *f.GroupRecord
			kept.Epoch = epoch
			kept.Voters, kept.Standbys, kept.Members = nil, nil, nil
			seed.add(&furtherGroup{&kept})
		}
	}
	return seed
}

// furtherGroup is a group as a record.
type furtherGroup struct{ *fact.GroupRecord }

func (f *furtherGroup) key() string {
	return string(binary.BigEndian.AppendUint32([]byte{groupKind}, f.Number))
}

func (f *furtherGroup) state() proto.Message {
	st := &wire.GroupState{
		Name: f.Name, Created: f.Created, FeatureLevel: f.Level, Epoch: f.Epoch, Fences: f.Fences, Wanted: f.Wanted,
		Voters: f.Voters, Standbys: f.Standbys,
	}
	for i := range f.Members {
		st.Members = append(st.Members, groupMember(&f.Members[i]))
	}
	return st
}

// groupMember is what a further group has of a member.
func groupMember(r *fact.MemberRecord) *wire.GroupMember {
	return &wire.GroupMember{Member: r.ID, Key: r.Key, Name: r.Name, Advertise: r.Advertise, Ephemeral: r.Ephemeral, FeatureLevel: r.Level}
}

// grouping is the machine as the commands of groups use it.
type grouping struct{ *Machine }

// hasGroups reports whether the group is at the level of further groups.
func (x grouping) hasGroups() bool { return x.levels.agreed >= wire.LevelGroups }

// create creates a further group, unless there is one of that name.
func (x grouping) create(c *wire.CreateGroup) *wire.Reply {
	if r := x.checkName(c.Name); r != nil {
		return r
	}
	switch {
	case x.groups.byName[c.Name] != nil:
		return x.reply(wire.Code_OK)
	case len(x.groups.byNumber) >= MaxGroups:
		return x.refuse(wire.Code_BUSY, "too many groups, at most 1000: delete those that are not used")
	case x.groups.created == 1<<32-1, x.groups.fences >= maxFences:
		return x.refuse(wire.Code_TOO_LARGE, "the numbers or the fences of groups are used up")
	}
	if r := x.checkFounders(c.Voters, c.Standbys); r != nil {
		return r
	}
	x.groups.created++
	g := &furtherGroup{&fact.GroupRecord{
		Number: x.groups.created, Name: c.Name, Created: x.index, Level: x.levels.agreed, Epoch: x.epoch, Fences: x.groups.fences,
		Wanted: x.settings.voters, Voters: slices.Clone(c.Voters), Standbys: slices.Clone(c.Standbys), Members: x.Members(),
	}}
	x.groups.add(g)
	x.dirty.create(g.key(), g)
	return x.reply(wire.Code_OK)
}

// checkFounders refuses a configuration with which a group could not begin: the member that submits it may
// know an old one.
func (x grouping) checkFounders(voters, standbys []uint64) *wire.Reply {
	live := 0
	for _, id := range voters {
		if k := x.members[id]; k != nil && k.isRegistered() && !k.silent {
			live++
		}
	}
	isMember := func(id uint64) bool { return x.members[id] != nil }
	switch {
	case len(voters) == 0 || len(voters) > MaxMembers || len(standbys) > MaxMembers:
		return x.refuse(wire.Code_INVALID, "invalid group: no voters, or too many members")
	case !ascending(voters) || !ascending(standbys) || slices.ContainsFunc(voters, func(id uint64) bool { return slices.Contains(standbys, id) }):
		return x.refuse(wire.Code_INVALID, "invalid group: its members are not in order, or listed twice")
	case !allOf(voters, isMember) || !allOf(standbys, isMember):
		return x.refuse(wire.Code_BUSY, "the members change, or one has not started yet; try again")
	case live <= len(voters)/2:
		return x.refuse(wire.Code_BUSY, "too few of the voters are alive; try again")
	}
	return nil
}

// drop removes a group that is sealed.
func (x grouping) drop(c *wire.DropGroup) *wire.Reply {
	g := x.groups.byNumber[c.Number]
	switch {
	case g == nil:
		return x.reply(wire.Code_OK)
	case c.Fences > maxFences:
		return x.refuse(wire.Code_INVALID, "invalid number of fences")
	}
	x.groups.remove(g)
	x.groups.fences = max(x.groups.fences, c.Fences)
	x.dirty.drop(g.key())
	return x.reply(wire.Code_OK)
}

// ascending reports whether IDs ascend, which none does that occurs twice, or is zero.
func ascending(ids []uint64) bool {
	last := uint64(0)
	for _, id := range ids {
		if id <= last {
			return false
		}
		last = id
	}
	return true
}

func allOf[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !is(v) })
}

// ofGroup loads the machine's own record, or that of a further group.
func (ld *loader) ofGroup(kind byte, rest string, value []byte) error {
	if kind == machineKey[0] {
		return ld.machine(rest, value)
	}
	var st wire.GroupState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	if len(rest) != 4 || st.Name == "" || ld.m.checkName(st.Name) != nil {
		return errShape
	}
	number := binary.BigEndian.Uint32([]byte(rest))
	r := &fact.GroupRecord{
		Number: number, Name: st.Name, Created: st.Created, Level: st.FeatureLevel, Epoch: st.Epoch, Fences: st.Fences, Wanted: st.Wanted,
		Voters: st.Voters, Standbys: st.Standbys,
	}
	var ids []uint64
	for _, k := range st.Members {
		ids = append(ids, k.Member)
		if len(k.Key) != 0 && len(k.Key) != publicKeySize {
			return errShape
		}
		r.Members = append(r.Members, fact.MemberRecord{
			ID: k.Member, Key: k.Key, Name: k.Name, Advertise: k.Advertise, Ephemeral: k.Ephemeral, Level: k.FeatureLevel,
		})
	}
	switch {
	case number == 0 || st.Epoch > maxEpoch || st.Fences > maxFences || st.Wanted != 0 && !validVoters(st.Wanted):
		return errRange
	case !ascending(st.Voters) || !ascending(st.Standbys) || !ascending(ids):
		return errRange
	case ld.m.groups.byName[st.Name] != nil:
		return errTwice
	}
	ld.m.groups.add(&furtherGroup{r})
	return nil
}

// linkGroups checks the records of further groups with what the machine's own one says.
func (ld *loader) linkGroups() error {
	m := ld.m
	for number := range m.groups.byNumber { // order: shows in no error
		if number > m.groups.created {
			return errRange
		}
	}
	grouped := m.groups.created > 0 || m.groups.fences > 0 || m.following != nil
	if grouped && !(grouping{m}).hasGroups() || len(m.groups.byNumber) > MaxGroups || m.following != nil && m.groups.created > 0 {
		return errRange
	}
	return nil
}
