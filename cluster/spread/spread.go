// Package spread decides which leaderships of further groups a member transfers, so that leaders are spread evenly over
// the voters.
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

// View is the leaders of all groups as a member sees them at one moment.
type View struct {
	// Voters has the voters, ascending. It is empty while nothing may move: a voter is down or not connected, or the
	// groups have different voters.
	Voters  []uint64
	Leaders []Leader // by number, that of the default group first
}

// Due returns the further groups that self leads and one of which it should transfer, and the voter that should lead that one;
// none if nothing is to be moved by self.
//
// Of all members only the one with the most leaderships moves one, to the voter with the fewest, and only if that one has at least two less:
// then each move makes the distribution more even, and there is a last one. Of several such members, and of several such voters, it is the
// one with the lowest ID. The leadership of the default group counts and does not move.
func (v View) Due(self uint64) (groups []uint32, to uint64) {
	counts := make(map[uint64]int, len(v.Voters))
	for _, l := range v.Leaders {
		if !slices.Contains(v.Voters, l.Member) {
			return nil, 0
		}
		counts[l.Member]++
		if l.Member == self && l.Group != 0 {
			groups = append(groups, l.Group)
		}
	}
	if len(v.Voters) == 0 {
		return nil, 0
	}
	most, fewest := v.Voters[0], v.Voters[0]
	for _, id := range v.Voters {
		if counts[id] > counts[most] {
			most = id
		}
		if counts[id] < counts[fewest] {
			fewest = id
		}
	}
	if most != self || counts[most] < counts[fewest]+2 {
		return nil, 0
	}
	return groups, fewest
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
func (h *hysteresis) look(self uint64, v View) (groups []uint32, to uint64) {
	if !v.equal(h.last) {
		h.last, h.looks = v, 0
	}
	h.looks++
	h.pause = max(0, h.pause-1)
	if h.looks < settledLooks || h.pause > 0 {
		return nil, 0
	}
	return v.Due(self)
}

// failed notes that a transfer has failed.
func (h *hysteresis) failed() { h.pause = failedLooks }
