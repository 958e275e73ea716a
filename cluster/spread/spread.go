// Package spread decides which leaderships a member transfers: those of all groups to voters of higher priority, and those of
// further groups so that they are spread evenly over the voters of the highest.
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
	Priority int32 // of its process
	// Up: it is alive, and connected to this member in both directions; or it is this member. Nothing else is known of one that is not.
	Up bool
	// Reaches has the voters that it is connected to in both directions itself, this member included, as it has reported lately.
	Reaches []uint64
	// Process is the incarnation of its process; zero of this member.
	Process [16]byte
}

// View is the leaders of all groups as a member sees them at one moment.
type View struct {
	Voters  []Voter  // of the default group, by ID
	Same    bool     // the groups have the same voters
	Leaders []Leader // by number, that of the default group first
}

// Move is a leadership that a member should transfer.
type Move struct {
	Groups   []uint32 // by number: the member leads each, and should transfer one; none: nothing is to be moved by it
	To       []uint64 // the voter that should lead that one, the best one first
	Priority bool     // to a voter of higher priority; else from the member that leads most to the one that leads fewest
}

// canLead reports whether a voter is up and connected to each other one that is: else one of these would have no leader.
func (v View) canLead(of Voter) bool {
	return of.Up && !slices.ContainsFunc(v.Voters, func(other Voter) bool {
		return other.Up && other.ID != of.ID && !slices.Contains(of.Reaches, other.ID)
	})
}

// counts returns how many groups each member leads.
func (v View) counts() map[uint64]int {
	counts := make(map[uint64]int, len(v.Voters))
	for _, l := range v.Leaders {
		counts[l.Member]++
	}
	return counts
}

// uneven returns what self should transfer so that the leaders are more even.
//
// Of the voters of the highest priority only the one with the most leaderships moves one of a further group, to the one with the fewest, and only if that one has
// at least two less: then each move makes the distribution more even, and there is a last one. Of several such members, and of several such voters, it is the
// one with the lowest ID. All voters have to be up. The leadership of the default group counts and does not move.
func (v View) uneven(self uint64) Move {
	counts := v.counts()
	preferred := v.preferred()
	down := slices.ContainsFunc(v.Voters, func(voter Voter) bool { return !voter.Up })
	leaderless := slices.ContainsFunc(v.Leaders, func(l Leader) bool { return v.voter(l.Member) == nil })
	if !v.Same || down || leaderless || len(preferred) == 0 {
		return Move{}
	}
	most, fewest := preferred[0], preferred[0]
	for _, id := range preferred {
		if counts[id] > counts[most] {
			most = id
		}
		if counts[id] < counts[fewest] {
			fewest = id
		}
	}
	groups := v.ledBy(self, 1)
	if most != self || len(groups) == 0 || counts[most] < counts[fewest]+2 || !v.canLead(*v.voter(fewest)) {
		return Move{}
	}
	return Move{groups, []uint64{fewest}, false}
}

// preferred returns the voters of the highest priority of those that are up, by ID.
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

// voter returns the voter with that ID; nil: there is none.
func (v View) voter(id uint64) *Voter {
	if i := slices.IndexFunc(v.Voters, func(voter Voter) bool { return voter.ID == id }); i >= 0 {
		return &v.Voters[i]
	}
	return nil
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

// Unsettled reports whether some member may have something to transfer, as far as this one sees, so that the others should know which voters each
// reaches: priorities differ, or the leaders are not even.
func (v View) Unsettled() bool {
	preferred, counts := v.preferred(), v.counts()
	up := slices.DeleteFunc(slices.Clone(v.Voters), func(voter Voter) bool { return !voter.Up })
	if len(preferred) < len(up) {
		return true
	}
	for _, a := range preferred {
		for _, b := range preferred {
			if counts[a] >= counts[b]+2 {
				return true
			}
		}
	}
	return false
}

func (v View) equal(o View) bool {
	return v.Same == o.Same && slices.Equal(v.Leaders, o.Leaders) && slices.EqualFunc(v.Voters, o.Voters, func(a, b Voter) bool {
		return a.ID == b.ID && a.Priority == b.Priority && a.Up == b.Up && slices.Equal(a.Reaches, b.Reaches)
	})
}

const (
	// settledLooks is for how many looks in succession what a move depends on has to be the same before a leadership moves. A look is a little more than an election
	// timeout after the last one, and a member that is connected to all others learns of a leader within two. So each member
	// has seen the last move that makes the leaders more even when one of them makes the next.
	settledLooks = 6
	// failedLooks is for how many looks nothing moves to make the leaders more even after a transfer that has failed: it has stopped the group for an election
	// timeout. For as long nothing moves to a voter of higher priority that has failed so, or to any that has lost a leadership to this member.
	failedLooks = 60
)

// hysteresis lets leaderships move one at a time: those that make the leaders more even only while nothing else changes.
type hysteresis struct {
	last  View
	looks int // in succession that have shown last
	pause int // looks until something may move after a transfer that has failed
	byPriority
}

// look takes what a member sees now, and returns what is due.
func (h *hysteresis) look(self uint64, v View) Move {
	if !v.equal(h.last) {
		h.last, h.looks = v, 0
	}
	h.looks++
	h.pause = max(0, h.pause-1)
	if m := h.byPriority.look(self, v); len(m.Groups) > 0 {
		return m
	}
	if h.looks < settledLooks || h.pause > 0 {
		return Move{}
	}
	m := v.uneven(self)
	if len(m.To) > 0 && h.voters[m.To[0]].lost > 0 {
		return Move{}
	}
	return m
}
