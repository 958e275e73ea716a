package crash

import (
	"slices"
	"time"
)

// maxProcesses bounds what one voter can state. A group has fewer members.
const maxProcesses = 256

// Votes is what a leader has received of the voters' evidence in its term. It is owned by one goroutine.
type Votes struct {
	statements map[uint64]statement // by voter
}

// statement is all that a voter has stated last.
type statement struct {
	at        time.Time
	processes []Process
}

// Receive notes what a member states, in place of what it stated before. What it states too much of counts for nothing.
func (v *Votes) Receive(from uint64, processes []Process, now time.Time) {
	for id, s := range v.statements { // order: each by itself
		if s.expired(now) {
			delete(v.statements, id)
		}
	}
	if len(processes) == 0 || len(processes) > maxProcesses {
		delete(v.statements, from)
		return
	}
	if v.statements == nil {
		v.statements = make(map[uint64]statement)
	}
	v.statements[from] = statement{now, processes}
}

func (s statement) expired(now time.Time) bool { return now.Sub(s.at) >= Lifetime }

// Reset forgets what was received in an earlier term.
func (v *Votes) Reset() { v.statements = nil }

// Crashed returns the processes that a majority of the voters takes for crashed, and of the outgoing voters in a joint
// configuration, which has some. What a member states of itself does not count, nor what one states that does not vote.
func (v *Votes) Crashed(voters, outgoing []uint64, now time.Time) (list []Process) {
	for _, voter := range voters {
		for _, p := range v.statements[voter].processes {
			if !slices.Contains(list, p) && v.majority(p, voters, now) && (len(outgoing) == 0 || v.majority(p, outgoing, now)) {
				list = append(list, p)
			}
		}
	}
	return list
}

func (v *Votes) majority(p Process, voters []uint64, now time.Time) bool {
	n := 0
	for _, id := range voters {
		s := v.statements[id]
		if id != p.Member && !s.expired(now) && slices.Contains(s.processes, p) {
			n++
		}
	}
	return n > len(voters)/2
}
