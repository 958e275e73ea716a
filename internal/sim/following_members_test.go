package sim

import (
	"bytes"
	"slices"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// follow stands for cluster/following_members.go.
func (proc *process) follow() {
	if proc.process != proc { // it has crashed meanwhile
		return
	}
	defaults := proc.of.process
	state, s, of := proc.core.Machine().Following(), proc.core.Status(), defaults.core
	switch {
	case proc.following || state == nil:
	case state.Sealed:
		if of.Machine().Directory().Has(state.Group) {
			proc.submitFollowing(defaults.program, &wire.Command{Op: &wire.Command_DropGroup{DropGroup: &wire.DropGroup{Number: state.Group, Fences: state.Fences}}})
		}
	case s.Leads && s.Registered && of.Status().Applied > state.Index && len(votersToFollow(of)) > 0 && proc.mustFollow(of):
		proc.submitFollowing(proc.program, &wire.Command{Op: &wire.Command_FollowMembers{FollowMembers: membersToFollow(of)}})
	}
}

// followQuiet has the quiet parts follow what has changed in the default group, as they tick rarely.
func (proc *process) followQuiet() {
	if proc.of != nil || proc.hosted.logs == nil {
		return
	}
	for _, number := range proc.hosted.numbers() {
		if part := proc.part(number).process; part != nil && part.core.Quiet() {
			part.follow()
		}
	}
}

func (proc *process) submitFollowing(by *program, c *wire.Command) {
	if by.registered && !by.terminated {
		proc.following = true
		by.submit(c, true, func(r *wire.Reply) {
			proc.following = false
			proc.sim.follows += btoi(r.GetCode() == wire.Code_OK && c.GetFollowMembers() != nil)
		})
	}
}

// mustFollow reports whether the group has other members, voters or another feature level than the default group.
func (proc *process) mustFollow(of *core.Core) bool {
	own, defaults := proc.core.Machine(), of.Machine()
	level, _ := own.Level()
	wanted, _ := defaults.Level()
	return level < wanted || own.GroupConfig().Voters != defaults.GroupConfig().Voters || !slices.Equal(own.Following().Voters, votersToFollow(of)) ||
		!slices.EqualFunc(own.Members(), defaults.Members(), func(a, b fact.MemberRecord) bool {
			return a.ID == b.ID && a.Name == b.Name && a.Advertise == b.Advertise && a.Ephemeral == b.Ephemeral && bytes.Equal(a.Key, b.Key) &&
				(a.Registered || a.Level == b.Level)
		})
}

func membersToFollow(of *core.Core) *wire.FollowMembers {
	level, _ := of.Machine().Level()
	c := &wire.FollowMembers{Index: of.Status().Applied, Level: level, Voters: votersToFollow(of), Wanted: of.Machine().GroupConfig().Voters}
	for _, r := range of.Machine().Members() {
		c.Members = append(c.Members, &wire.GroupMember{
			Member: r.ID, Key: r.Key, Name: r.Name, Advertise: r.Advertise, Ephemeral: r.Ephemeral, FeatureLevel: r.Level,
		})
	}
	return c
}

// votersToFollow returns the voters of the default group, without those that are removed.
func votersToFollow(of *core.Core) []uint64 {
	voters := slices.Sorted(slices.Values(of.Status().Membership.GetVoters()))
	return slices.DeleteFunc(voters, func(id uint64) bool {
		return !slices.ContainsFunc(of.Machine().Members(), func(r fact.MemberRecord) bool { return r.ID == id })
	})
}

// groupsSettled reports whether all further groups have the configuration of the default one, and a majority of their voters knows that.
func (sim *simulation) groupsSettled() bool {
	return !slices.ContainsFunc(sim.groups()[1:], func(g *simulation) bool {
		return !g.followed() || !g.leader().core.Status().Settled || !g.leader().core.Status().Proposing
	})
}

// followed reports whether Raft's configuration of the further group is that of the default group.
func (sim *simulation) followed() bool {
	leader := sim.leader()
	if leader == nil {
		return false
	}
	own, defaults := leader.core.Status().Membership, leader.of.process.core.Status().Membership
	same := func(a, b []uint64) bool {
		return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
	}
	return len(own.GetVotersOutgoing()) == 0 && same(own.GetVoters(), defaults.GetVoters()) && same(own.GetLearners(), defaults.GetLearners())
}
