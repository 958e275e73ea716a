package cluster

import (
	"bytes"
	"context"
	"log/slog"
	"slices"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// followingMembers has a further group follow the default one, at each heartbeat interval. Its leader submits what differs
// in the members, the voters and the feature level, as this member's replica of the default group shows them. When
// the group is sealed, each member reports to the default group that it can be dropped. It is owned by the replica's loop.
type followingMembers struct {
	number   uint32
	core     replicated
	defaults group // the replica of the default one
	group    group
	commands Commands
	routine  func(name string, run func())
	post     func(run func(*core.Core))
	log      *slog.Logger
	lifetime context.Context

	busy bool // a submission is under way
}

// consider submits what is due.
func (f *followingMembers) consider() {
	state := f.core.Machine().Following()
	of := f.defaults.Status()
	switch s := f.core.Status(); {
	case f.busy || state == nil || of == nil: // without state, its snapshot is still to come
	case state.Sealed:
		if of.Directory.Has(f.number) {
			f.submit(f.defaults, f.commands.DropGroup(f.number, state.Fences))
		}
	case len(votersToFollow(of)) == 0:
		// The only voter is removed, and has no successor yet. To follow that would end the registration of this leader, which has to submit
		// the next members as well.
	case s.Leads && s.Registered && of.Applied > state.Index && f.differs(of):
		f.submit(f.group, f.commands.FollowMembers(membersToFollow(of)))
	}
}

// submit submits a command to one of the two groups. What has no effect is submitted again at a later tick.
func (f *followingMembers) submit(to group, command []byte) {
	f.busy = true
	f.routine("following", func() {
		_, err := to.Execute(f.lifetime, command)
		if err != nil && f.lifetime.Err() == nil {
			f.log.Debug("members not followed", "group", f.number, "error", err)
		}
		f.post(func(*core.Core) { f.busy = false })
	})
}

// differs reports whether the group has other members, voters or another feature level than the default group.
func (f *followingMembers) differs(of *replica.Status) bool {
	machine := f.core.Machine()
	level, _ := machine.Level()
	return level < of.Level || machine.GroupConfig().Voters != of.Config.Voters ||
		!slices.Equal(machine.Following().Voters, votersToFollow(of)) ||
		!slices.EqualFunc(machine.Members(), of.Admitted, func(a, b fact.MemberRecord) bool {
			return a.ID == b.ID && a.Name == b.Name && a.Advertise == b.Advertise && a.Ephemeral == b.Ephemeral && bytes.Equal(a.Key, b.Key) &&
				(a.Registered || a.Level == b.Level)
		})
}

// membersToFollow returns the command with the members as the default group has them.
func membersToFollow(of *replica.Status) *wire.FollowMembers {
	c := &wire.FollowMembers{Index: of.Applied, Level: of.Level, Voters: votersToFollow(of), Wanted: of.Config.Voters}
	for _, r := range of.Admitted {
		c.Members = append(c.Members, &wire.GroupMember{
			Member: r.ID, Key: r.Key, Name: r.Name, Advertise: r.Advertise, Ephemeral: r.Ephemeral, FeatureLevel: r.Level,
		})
	}
	return c
}

// votersToFollow returns the voters of the default group, ascending. One that was removed leaves its configuration later.
func votersToFollow(of *replica.Status) []uint64 {
	voters := slices.Sorted(slices.Values(of.Conf.GetVoters()))
	return slices.DeleteFunc(voters, func(id uint64) bool {
		return !slices.ContainsFunc(of.Admitted, func(r fact.MemberRecord) bool { return r.ID == id })
	})
}

// follow has each replica consider what its group is to follow, at once: a quiet one ticks rarely.
func (g *Groups) follow() {
	g.each(func(h *hosted) { h.replica.Post(func(*core.Core) { h.following.consider() }) })
}

// mayRemove reports whether a member that was removed is out of the configurations of all further groups, as far as is
// known here.
func (g *Groups) mayRemove(list *fact.Directory, member uint64) bool {
	for _, r := range list.Groups {
		h := g.started(r.Number)
		if h == nil {
			return false
		}
		conf := h.replica.Status().Conf
		if len(conf.GetVoters()) == 0 || slices.Contains(core.MembersOf(conf), member) {
			return false
		}
	}
	return true
}
