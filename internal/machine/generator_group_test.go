package machine

import (
	"bytes"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// groupCommand is a command about further groups: of the default group, or of a further one.
func (g *generator) groupCommand(r *reference.Model) *wire.Command {
	switch further := r.Groups.Number > 0; {
	case further && g.made > perSeed/2 && g.chance(25):
		return &wire.Command{Op: &wire.Command_SealGroup{SealGroup: &wire.SealGroup{Force: g.chance(30)}}}
	case further != g.chance(4): // else of the other kind
		return g.followMembers(r)
	case g.chance(60):
		return g.createGroup(r)
	}
	return g.dropGroup(r)
}

func (g *generator) createGroup(r *reference.Model) *wire.Command {
	c := &wire.CreateGroup{Name: g.name()}
	if g.chance(30) { // soon there are as many as there may be
		c.Name = string(rune('a' + g.rand.IntN(200)))
	}
	for _, m := range r.Members() {
		switch g.rand.IntN(4) {
		case 0:
			c.Standbys = append(c.Standbys, m.ID)
		case 1, 2:
			c.Voters = append(c.Voters, m.ID)
		}
	}
	switch g.rand.IntN(20) {
	case 0:
		c.Voters = append(c.Voters, g.member(r))
	case 1:
		c.Standbys = append(c.Standbys, g.member(r))
	case 2:
		slices.Reverse(c.Voters)
	}
	return &wire.Command{Op: &wire.Command_CreateGroup{CreateGroup: c}}
}

func (g *generator) dropGroup(r *reference.Model) *wire.Command {
	c := &wire.DropGroup{Number: g.rand.Uint32N(r.Groups.Created + 2), Fences: g.rand.Uint64N(1000)}
	if list := r.Groups.List; len(list) > 0 && g.chance(30) {
		c.Number = list[g.rand.IntN(len(list))].Number
	}
	if g.chance(3) {
		c.Fences = maxFences - 1 + g.rand.Uint64N(3)
	}
	return &wire.Command{Op: &wire.Command_DropGroup{DropGroup: c}}
}

func (g *generator) followMembers(r *reference.Model) *wire.Command {
	c := &wire.FollowMembers{Index: r.Groups.Index + g.rand.Uint64N(3), Level: r.Level + uint32(g.rand.IntN(20)/19), Wanted: []uint32{0, 1, 3, 5, 7, 2}[g.rand.IntN(6)]}
	if g.chance(2) {
		c.Index = g.rand.Uint64N(1000)
	}
	for id := uint64(1); id <= g.last+1; id++ {
		if !slices.Contains(g.group[:], id) && g.chance(60) || g.chance(3) {
			continue
		}
		m := &wire.GroupMember{Member: id, Key: g.followedKey(id), Name: g.label(), Advertise: g.label(), Ephemeral: g.chance(50), FeatureLevel: g.level(r)}
		if c.Members = append(c.Members, m); g.chance(60) {
			c.Voters = append(c.Voters, id)
		}
	}
	switch g.rand.IntN(40) {
	case 0:
		slices.Reverse(c.Members)
	case 1:
		c.Voters = append(c.Voters, g.last+2)
	case 2:
		c.Members = nil
	case 3:
		for range MaxMembers {
			c.Members = append(c.Members, &wire.GroupMember{Member: g.last + 2 + uint64(len(c.Members))})
		}
	}
	return &wire.Command{Op: &wire.Command_FollowMembers{FollowMembers: c}}
}

// followedKey is mostly none: the registrations here mostly state none.
func (g *generator) followedKey(member uint64) []byte {
	switch {
	case g.chance(90):
		return nil
	case g.chance(5):
		return []byte{1}
	}
	return bytes.Repeat([]byte{byte(member), 0}, 16)
}

// further has the group be a further one that has just been created at that feature level.
func (r *rig) further(level uint32) {
	of := &fact.GroupRecord{
		Number: 7, Name: "further", Created: 100, Level: level, Fences: 1234, Wanted: 3, Voters: []uint64{1, 2, 3},
		Members: []fact.MemberRecord{{ID: 1, Name: "a", Level: wire.FeatureLevel}, {ID: 2, Level: wire.FeatureLevel}, {ID: 3, Level: wire.FeatureLevel}},
	}
	reference.Further(&r.model, of.Number, of.Created, of.Level, of.Fences, of.Wanted, of.Voters, of.Members)
	for _, c := range FirstStateOf(of) {
		r.disk[string(c.Key)] = c.Value
	}
	for _, m := range []**Machine{&r.straight, &r.loaded} {
		*m = must(LoadAt(r.disk.pairs(), 1<<30))
	}
	r.lists = lists(r.straight)
}

// What happens to further groups in the logs of all commands.
var groupEvents = []string{
	"groups: created", "groups: a founder that is no member", "groups: too few founders alive", "groups: dropped",
	"groups: followed", "groups: a member removed", "groups: in use", "groups: sealed", "groups: a command behind the seal",
}
