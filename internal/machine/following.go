package machine

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// The machine of a further group. It has the members, the feature level and the wanted voters of the default
// group as of an index, which its leader submits (FollowMembers): what is admitted, removed or upgraded there
// is so here a moment later, and nothing of that is decided here. So no command of the default group has
// to wait for a further one, and a further group needs no answer of the default one.

// following is what a further group has of the default one; nil in the default group.
type following struct {
	group  uint32
	index  uint64
	voters []uint64
	sealed bool
	view   *fact.Following // never changed in place; nil: see Machine.Following
}

// FirstStateOf returns the state with which a further group begins, alike on all its members.
func FirstStateOf(r *fact.GroupRecord) []wire.Change {
	m := New()
	m.levels.agreed, m.epoch, m.fences = r.Level, r.Epoch, r.Fences
	m.settings.voters = r.Wanted
	m.following = &following{group: r.Number, index: r.Created, voters: r.Voters}
	changes := []wire.Change{{Key: []byte(machineKey), Value: encode(m), Created: true}}
	for i := range r.Members {
		k := newMember(r.Members[i].ID)
		k.follow(groupMember(&r.Members[i]))
		changes = append(changes, wire.Change{Key: []byte(k.key()), Value: encode(k), Created: true})
	}
	return changes
}

// follow takes over what the default group has of a member, and reports whether that is news.
func (k *member) follow(c *wire.GroupMember) (changed bool) {
	level := k.level
	if !k.isRegistered() { // else its process here has stated its own
		level = c.FeatureLevel
	}
	changed = k.public != string(c.Key) || k.name != c.Name || k.advertise != c.Advertise || k.ephemeral != c.Ephemeral || k.level != level
	k.public, k.name, k.advertise, k.ephemeral, k.level = string(c.Key), c.Name, c.Advertise, c.Ephemeral, level
	return changed
}

// refuses returns the refusal of a command that a further group does not know, or that comes too late.
func (x grouping) refuses(c *wire.Command) *wire.Reply {
	switch c.Op.(type) {
	case *wire.Command_RemoveMember, *wire.Command_AdmitMember, *wire.Command_SetGroupConfig, *wire.Command_RaiseLevel,
		*wire.Command_CreateGroup, *wire.Command_DropGroup:
		return x.refuse(wire.Code_INVALID, "the members, settings and groups are those of the default group: ask that")
	case *wire.Command_SealGroup:
		return nil
	}
	if x.isSealed() {
		return x.refuse(wire.Code_GROUP_DELETED, "the group is being deleted")
	}
	return nil
}

// follow follows the members of the default group as of a later index.
func (x grouping) follow(c *wire.FollowMembers) *wire.Reply {
	f := x.following
	if c.Index <= f.index {
		return x.reply(wire.Code_OK)
	}
	if r := x.checkFollow(c); r != nil {
		return r
	}
	f.index, f.voters, f.view = c.Index, slices.Clone(c.Voters), nil
	x.settings.voters = c.Wanted
	if c.Level > x.levels.agreed {
		x.raiseTo(c.Level)
	}
	listed := make(map[uint64]bool, len(c.Members))
	for _, of := range c.Members {
		listed[of.Member] = true
		k := x.known(of.Member)
		switch {
		case k == nil:
			k = newMember(of.Member)
			k.follow(of)
			x.addMember(k)
		case k.removed || !k.follow(of):
			continue
		}
		x.memberChanged(k)
	}
	var removed []*member
	for _, id := range slices.Sorted(maps.Keys(x.members)) {
		x.visits.Count()
		if !listed[id] {
			removed = append(removed, x.members[id])
		}
	}
	removing(x).remove(removed...)
	return x.reply(wire.Code_OK)
}

// checkFollow refuses what the default group cannot have.
func (x grouping) checkFollow(c *wire.FollowMembers) *wire.Reply {
	ids := make([]uint64, 0, len(c.Members))
	for _, k := range c.Members {
		ids = append(ids, k.Member)
		if len(k.Key) != 0 && len(k.Key) != publicKeySize || len(k.Name) > MaxName || len(k.Advertise) > maxAdvertise {
			return x.refuse(wire.Code_INVALID, "invalid member: its key is not 32 bytes, or its name or address is too long")
		}
	}
	isListed := func(id uint64) bool { _, found := slices.BinarySearch(ids, id); return found }
	switch {
	case len(ids) == 0 || len(ids) > MaxMembers || !ascending(ids):
		return x.refuse(wire.Code_INVALID, "invalid members: none, too many, or not in order")
	case !ascending(c.Voters) || !allOf(c.Voters, isListed):
		return x.refuse(wire.Code_INVALID, "invalid voters: not in order, or no members")
	case c.Wanted != 0 && !validVoters(c.Wanted):
		return x.refuse(wire.Code_INVALID, "invalid number of voters: want 1, 3, 5 or 7")
	}
	return nil
}

// seal ends the group.
func (x grouping) seal(c *wire.SealGroup) *wire.Reply {
	switch {
	case x.following.sealed:
		return x.reply(wire.Code_OK)
	case !c.Force && x.isUsed():
		return x.refuse(wire.Code_LOCKED, "the group holds locks, permits, keys, jobs or shards")
	}
	x.following.sealed, x.following.view = true, nil
	return x.reply(wire.Code_OK)
}

// isUsed reports whether anything would be lost with the group, but for sessions that hold nothing.
func (x grouping) isUsed() bool {
	return len(x.locks.byName)+len(x.elections.byName)+len(x.semaphores.byName)+len(x.jobs.byName)+len(x.shardSets.byName)+x.keys.tree.Len() > 0 ||
		len(x.keys.delays) > 0
}

// isSealed reports whether the group is sealed. Then its state stands still, but for the outcomes of what it refuses: no
// time passes, so that nothing is granted any more.
func (x grouping) isSealed() bool { return x.following != nil && x.following.sealed }

// isFurther reports whether this is the machine of a further group.
func (x grouping) isFurther() bool { return x.following != nil }

// mayRegister refuses the registration of a process whose member the group does not list, or if the group ends.
// The default group has checked its succession token.
func (x grouping) mayRegister(c *wire.Register) *wire.Reply {
	switch {
	case x.following.sealed:
		return x.refuse(wire.Code_GROUP_DELETED, "the group is being deleted")
	case x.known(c.Member) == nil:
		return x.refuse(wire.Code_BUSY, "the group does not list the member yet; try again")
	}
	return nil
}
