package sim

import (
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// What the checkers ask the machine. A view of an absent object is zero.

func lockOf(m *machine.Machine, name string) (v machine.LockView) {
	if found := machine.Ask[*machine.LockView](m, machine.LockQuery{Name: name}); found != nil {
		v = *found
	}
	return v
}

func locksOf(m *machine.Machine) []machine.LockView {
	return machine.Ask[[]machine.LockView](m, machine.LocksQuery{})
}

func semaphoreOf(m *machine.Machine, name string) (v machine.SemaphoreView, exists bool) {
	found := machine.Ask[*machine.SemaphoreView](m, machine.SemaphoreQuery{Name: name})
	if found == nil {
		return v, false
	}
	return *found, true
}

func leaderOf(m *machine.Machine, election string) *fact.Leader {
	return machine.Ask[*fact.Leader](m, machine.LeaderQuery{Election: election})
}

func liveSession(m *machine.Machine, id wire.ID) (v machine.SessionView, alive bool) {
	found := machine.Ask[*machine.SessionView](m, machine.SessionQuery{ID: id})
	if found == nil {
		return v, false
	}
	return *found, true
}

func registered(m *machine.Machine, id wire.ID) bool {
	_, _, ok := m.Registration(id)
	return ok
}

func sessionsOf(m *machine.Machine) (all []machine.SessionView) {
	for after := (machine.SessionCursor{}); ; after = all[len(all)-1].Cursor() {
		page := machine.Ask[[]machine.SessionView](m, machine.SessionsQuery{After: after})
		if all = append(all, page...); len(page) == 0 {
			return all
		}
	}
}

func keyOf(m *machine.Machine, key string) *fact.Entry {
	return machine.Ask[*fact.Entry](m, machine.KeyQuery{Key: key})
}

func keysOf(m *machine.Machine) []*fact.Entry {
	return machine.Ask[[]*fact.Entry](m, machine.KeysQuery{})
}

// changesOf is the index of the last change of a key.
func changesOf(m *machine.Machine) uint64 { return machine.Ask[uint64](m, machine.IndexQuery{}) }
