package reference

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/wire"
)

// label returns a label as it is stored, or the refusal of it. Below its level it means nothing.
func (r *Model) label(label []byte) (string, *wire.Reply) {
	switch {
	case atLeast(r.Level) < wire.LevelLabel:
		return "", nil
	case len(label) > MaxLabel:
		return "", answer(wire.Code_TOO_LARGE)
	case !utf8.Valid(label), bytes.Contains(label, []byte{0}):
		return "", answer(wire.Code_INVALID)
	}
	return string(label), nil
}

// stamp returns the group time to store; 0: none below that level.
func (r *Model) stamp() int64 {
	if atLeast(r.Level) < wire.LevelLabel {
		return 0
	}
	return r.Now
}

// LockNow returns a lock or an election as a query must show it: without what an ended session
// has; nil: there is none.
func (r *Model) LockNow(election bool, name string) *Lock {
	l := r.find(election, name)
	if l == nil {
		return nil
	}
	now := *l
	if now.Owner != nil && r.lateSession(now.Owner.Session) != nil {
		now.Owner = nil
	}
	now.Shares = slices.DeleteFunc(l.Live(), func(sh Share) bool { return r.lateSession(sh.Session) != nil })
	now.Queue = nil
	for _, p := range l.Queue {
		if r.lateSession(p.Session) == nil {
			now.Queue = append(now.Queue, p)
		}
	}
	for _, s := range (sets{r}).await(l) {
		if r.lateSession(s.Session) == nil {
			now.Queue = append(now.Queue, s.Place)
		}
	}
	slices.SortFunc(now.Queue, func(a, b Place) int { return cmp.Compare(a.arrival, b.arrival) })
	return &now
}

// Cycles returns each session that waits for itself by way of others, with the number of
// sessions in a shortest such cycle.
func (r *Model) Cycles() map[wire.ID]int {
	steps := make(map[[2]wire.ID]int) // of a shortest way, from a waiter to an owner
	for _, from := range r.Sessions {
		for _, w := range (deadlocks{r}).waits(from.ID) {
			for _, s := range (deadlocks{r}).steps(w, true) {
				if s.owner != nil && s.owner.Session != from.ID && r.lateSession(s.owner.Session) == nil {
					steps[[2]wire.ID{from.ID, s.owner.Session}] = 1
				}
			}
		}
	}
	for _, via := range r.Sessions {
		for _, from := range r.Sessions {
			first := steps[[2]wire.ID{from.ID, via.ID}]
			if first == 0 {
				continue
			}
			for _, to := range r.Sessions {
				second := steps[[2]wire.ID{via.ID, to.ID}]
				way := [2]wire.ID{from.ID, to.ID}
				if second > 0 && (steps[way] == 0 || first+second < steps[way]) {
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
