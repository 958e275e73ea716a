package reference

import "github.com/conclave-go/conclave/internal/wire"

// Cycles returns each session that waits for itself by way of others, with the number of
// sessions in a shortest such cycle.
func (r *Model) Cycles() map[wire.ID]int {
	steps := make(map[[2]wire.ID]int) // of a shortest way, from a waiter to an owner
	for _, l := range r.Locks {
		if l.Owner == nil || r.lateSession(l.Owner.Session) != nil {
			continue
		}
		for _, p := range l.Queue {
			if p.Session != l.Owner.Session && r.lateSession(p.Session) == nil {
				steps[[2]wire.ID{p.Session, l.Owner.Session}] = 1
			}
		}
	}
	for _, via := range r.Sessions {
		for _, from := range r.Sessions {
			for _, to := range r.Sessions {
				first, second := steps[[2]wire.ID{from.ID, via.ID}], steps[[2]wire.ID{via.ID, to.ID}]
				way := [2]wire.ID{from.ID, to.ID}
				if first > 0 && second > 0 && (steps[way] == 0 || first+second < steps[way]) {
					steps[way] = first + second
				}
			}
		}
	}
	cycles := make(map[wire.ID]int)
	for _, s := range r.Sessions {
		if n := steps[[2]wire.ID{s.ID, s.ID}]; n > 0 {
			cycles[s.ID] = n
		}
	}
	return cycles
}
