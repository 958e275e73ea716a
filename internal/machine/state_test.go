package machine

import (
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// What tests ask for most.

func lockOf(m *Machine, name string) *LockView { return Ask[*LockView](m, LockQuery{Name: name}) }

func sessionOf(m *Machine, id wire.ID) *SessionView { return Ask[*SessionView](m, SessionQuery{id}) }

func semaphoreOf(m *Machine, name string) *SemaphoreView {
	return Ask[*SemaphoreView](m, SemaphoreQuery{name})
}

func leaderOf(m *Machine, election string) *fact.Leader {
	return Ask[*fact.Leader](m, LeaderQuery{election})
}

func keyOf(m *Machine, key string) *fact.Entry { return Ask[*fact.Entry](m, KeyQuery{key}) }

func keysOf(m *Machine, prefix string) []*fact.Entry {
	return Ask[[]*fact.Entry](m, KeysQuery{prefix})
}

func changesOf(m *Machine) uint64 { return Ask[uint64](m, IndexQuery{}) }

// allLocks returns all locks whose names begin with prefix.
func allLocks(m *Machine, prefix string) (all []LockView) {
	for after := ""; ; after = all[len(all)-1].Name {
		page := Ask[[]LockView](m, LocksQuery{Prefix: prefix, After: after})
		if all = append(all, page...); len(page) == 0 {
			return all
		}
	}
}

// allSessions returns all sessions by creation.
func allSessions(m *Machine) (all []SessionView) {
	for after := (SessionCursor{}); ; after = all[len(all)-1].Cursor() {
		page := Ask[[]SessionView](m, SessionsQuery{After: after})
		if all = append(all, page...); len(page) == 0 {
			return all
		}
	}
}
