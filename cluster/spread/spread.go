// Package spread decides which leaderships a member transfers: those of all groups to the voters of the highest priority, and those of
// further groups so that they are spread evenly over these.
//
// It is a seam, not an API: only package cluster uses it.
package spread

import "slices"

// Leader is who leads a group, as a member sees it.
type Leader struct {
	Group  uint32 // by number; 0: the default group
	Member uint64 // 0: none is known
	Term   uint64
}

// Voter is a voter as a member sees it.
type Voter struct {
	ID       uint64
	Priority int32 // of its process; unknown while it is not up
	Up       bool  // alive, and connected to this member in both directions; or this member
}

// View is the leaders of all groups as a member sees them at one moment.
type View struct {
	Voters  []Voter  // by ID; none while the groups have different voters, so that nothing may move
	Leaders []Leader // by number, that of the default group first
}

// Move is a leadership that a member should transfer.
type Move struct {
	Groups   []uint32 // by number: the member leads each, and should transfer one; none: nothing is to be moved by it
	To       uint64   // the voter that should lead that one
	Priority bool     // to a voter of higher priority; else from the member that leads most to the one that leads fewest
}

// Due returns what self should transfer.
//
// A leadership moves to a voter of higher priority, if one is up: to the one of the highest that leads fewest. Of several members that lead and have
// a lower one the first by ID moves a leadership, and while there are any nothing else moves.
//
// Of the members of the highest priority only the one with the most leaderships moves one of a further group, to the one with the fewest, and only if that one has
// at least two less, and all voters are up. The leadership of the default group counts.
//
// So each move lets a voter of higher priority lead or makes the distribution more even, and there is a last one. Of several members with the
// most, and of several with the fewest, it is the first by ID.
func (v View) Due(self uint64) Move {
	counts := make(map[uint64]int, len(v.Voters))
	for _, l := range v.Leaders {
		if !slices.ContainsFunc(v.Voters, func(voter Voter) bool { return voter.ID == l.Member && voter.Up }) {
			return Move{} // an election is due, or what this member sees is old
		}
		counts[l.Member]++
	}
	preferred := v.preferred()
	for _, voter := range v.Voters {
		switch {
		case counts[voter.ID] == 0 || slices.Contains(preferred, voter.ID):
		case voter.ID == self:
			_, fewest := extremes(preferred, counts)
			return Move{v.ledBy(self, 0), fewest, true}
		default:
			return Move{} // that one's
		}
	}
	if slices.ContainsFunc(v.Voters, func(voter Voter) bool { return !voter.Up }) || len(preferred) == 0 {
		return Move{}
	}
	most, fewest := extremes(preferred, counts)
	if groups := v.ledBy(self, 1); most == self && len(groups) > 0 && counts[most] >= counts[fewest]+2 {
		return Move{groups, fewest, false}
	}
	return Move{}
}

// preferred returns the voters that are up and have the highest priority of these, by ID.
func (v View) preferred() (ids []uint64) {
	var highest int32
	for _, voter := range v.Voters {
		switch {
		case !voter.Up || len(ids) > 0 && voter.Priority < highest:
		case len(ids) > 0 && voter.Priority == highest:
			ids = append(ids, voter.ID)
		default:
			ids, highest = append(ids[:0], voter.ID), voter.Priority
		}
	}
	return ids
}

// ledBy returns the groups from a number on that a member leads.
func (v View) ledBy(member uint64, from uint32) (groups []uint32) {
	for _, l := range v.Leaders {
		if l.Member == member && l.Group >= from {
			groups = append(groups, l.Group)
		}
	}
	return groups
}

// extremes returns which of some members, at least one, have the highest and the lowest count: the first of several.
func extremes(ids []uint64, counts map[uint64]int) (most, fewest uint64) {
	most, fewest = ids[0], ids[0]
	for _, id := range ids {
		if counts[id] > counts[most] {
			most = id
		}
		if counts[id] < counts[fewest] {
			fewest = id
		}
	}
	return most, fewest
}

func (v View) equal(o View) bool {
	return slices.Equal(v.Voters, o.Voters) && slices.Equal(v.Leaders, o.Leaders)
}

const (
	// settledLooks is in how many looks in succession the view has to be the same before a leadership moves. A look is an election
	// timeout after the last one, and a member that is connected to all others learns of a leader within two. So each member
	// has seen the last move when one of them makes the next.
	settledLooks = 6
	// failedLooks is for how many looks nothing moves after a transfer that has failed: it has stopped the group for an election timeout.
	failedLooks = 60
)

// hysteresis lets leaderships move one at a time, and only while nothing else changes.
type hysteresis struct {
	last  View
	looks int // in succession that have shown last
	pause int // looks until something may move after a transfer that has failed
}

// look takes what a member sees now, and returns what is due.
func (h *hysteresis) look(self uint64, v View) Move {
	if !v.equal(h.last) {
		h.last, h.looks = v, 0
	}
	h.looks++
	h.pause = max(0, h.pause-1)
	if h.looks < settledLooks || h.pause > 0 {
		return Move{}
	}
	return v.Due(self)
}

// failed notes that a transfer has failed.
func (h *hysteresis) failed() { h.pause = failedLooks }
