package spread

import (
	"cmp"
	"maps"
	"slices"
)

// byPriority decides what a member transfers to voters of higher priority. A priority is that of a process for its life, so such moves do not
// depend on what else moves: each member decides by what it leads itself, and what it has moved does not come back unless a
// voter loses it, which counts against that voter.
type byPriority struct {
	voters map[uint64]*candidate
	groups map[uint32]*leadership
	after  uint32 // the group that was tried last
}

// candidate is a voter as this member has seen it.
type candidate struct {
	priority int32
	looks    int // in succession that have shown that it can lead, with that priority
	pause    int // looks until something may move to it again
	lost     int // looks until something may move to it to make the leaders more even: it has lost a leadership to this member while it was up

	process [16]byte // its last one that this member has seen
	ended   bool     // since the last look: it is not up, or another one runs
}

// leadership is a group's leader as this member has seen it.
type leadership struct {
	Leader
	looks int // in succession that have shown that
}

// look takes what a member sees now, and returns what is due: a leadership of its own that it has had for settledLooks, and the voters of higher
// priority that could lead for as long, the one of the highest first, and of several the one that leads fewest.
func (p *byPriority) look(self uint64, v View) Move {
	own := v.voter(self)
	if own == nil {
		return Move{}
	}
	p.noteVoters(v)
	groups := p.noteLeaders(*own, v)
	counts := v.counts()
	var to []uint64
	for id, c := range p.voters { // order: sorted below
		if c.priority > own.Priority && c.looks >= settledLooks && c.pause == 0 {
			to = append(to, id)
		}
	}
	if len(to) == 0 || len(groups) == 0 {
		return Move{}
	}
	slices.SortFunc(to, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(p.voters[b].priority, p.voters[a].priority), cmp.Compare(counts[a], counts[b]), cmp.Compare(a, b))
	})
	// Begin behind the group that was tried last, so that one in which no voter is up to date does not hold back the others.
	if i := slices.IndexFunc(groups, func(group uint32) bool { return group > p.after }); i > 0 {
		groups = append(slices.Clone(groups[i:]), groups[:i]...)
	}
	return Move{groups, to, true}
}

func (p *byPriority) noteVoters(v View) {
	if p.voters == nil {
		p.voters, p.groups = make(map[uint64]*candidate), make(map[uint32]*leadership)
	}
	maps.DeleteFunc(p.voters, func(id uint64, _ *candidate) bool { return v.voter(id) == nil })
	for _, voter := range v.Voters {
		c := p.voters[voter.ID]
		if c == nil {
			c = new(candidate)
			p.voters[voter.ID] = c
		}
		c.pause, c.lost = max(0, c.pause-1), max(0, c.lost-1)
		c.ended = !voter.Up || c.process != [16]byte{} && c.process != voter.Process // a restart may take less than from one look to the next
		if c.ended {
			c.lost = 0 // that explains the loss
		}
		if voter.Up {
			c.process = voter.Process
		}
		switch {
		case !v.canLead(voter):
			c.looks = 0
		case c.priority != voter.Priority:
			c.priority, c.looks = voter.Priority, 1
		default:
			c.looks++
		}
	}
}

// noteLeaders returns the groups that this member has led for settledLooks, by number. What it has taken over from a voter
// counts against that one: a voter with a bad disk would get it back again and again.
func (p *byPriority) noteLeaders(own Voter, v View) (settled []uint32) {
	listed := make(map[uint32]bool, len(v.Leaders))
	for _, l := range v.Leaders {
		listed[l.Group] = true
		last := p.groups[l.Group]
		if last == nil {
			last = new(leadership)
			p.groups[l.Group] = last
		}
		switch {
		case l.Member == 0: // an election
			last.looks = 0
			continue
		case last.Leader == l:
			last.looks++
		default:
			if c := p.voters[last.Member]; l.Member == own.ID && last.Member != own.ID && c != nil {
				c.hasLost(own.Priority)
			}
			*last = leadership{l, 1}
		}
		if l.Member == own.ID && last.looks >= settledLooks {
			settled = append(settled, l.Group)
		}
	}
	maps.DeleteFunc(p.groups, func(group uint32, _ *leadership) bool { return !listed[group] })
	return settled
}

// hasLost notes that a voter has lost a leadership to this member, which has that priority.
func (c *candidate) hasLost(own int32) {
	if c.priority > own {
		c.pause = failedLooks
	}
	if !c.ended {
		c.lost = failedLooks
	}
}

// tried notes what was tried last of a move, and what has become of it.
func (p *byPriority) tried(group uint32, to uint64, o Outcome) {
	p.after = group
	if c := p.voters[to]; c != nil && o == Failed {
		c.pause = failedLooks
	}
}

// First returns which of the voters is to campaign first in a new group, so that the group need not move: one of the highest priority, and of several ones
// another one for each group, by its number. priority returns that of a voter, and whether this member is connected to it, or is it. One that is down is not
// waited for. Members decide alike if they see alike; otherwise two may campaign, or none before the election timeout. A member that
// is not connected to a majority, as one that has just started, can win no election, so it does not take itself for the only candidate.
func First(group uint32, voters []uint64, priority func(id uint64) (priority int32, connected bool)) uint64 {
	var first []uint64
	var highest int32
	connected := 0
	for _, id := range voters {
		p, ok := priority(id)
		if !ok {
			continue
		}
		connected++
		if len(first) == 0 || p > highest {
			first, highest = first[:0], p
		}
		if p == highest {
			first = append(first, id)
		}
	}
	if connected <= len(voters)/2 {
		first = voters
	}
	return first[group%uint32(len(first))]
}
