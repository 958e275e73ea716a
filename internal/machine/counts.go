package machine

// Counts is how much a state has of each kind.
type Counts struct {
	Sessions, Locks, Elections, Semaphores int // those in use: held, or in a lock-delay
	Waiters                                int
	Keys, Checks                           int
	Clients                                int // registered
}

// Counts returns how much the state has of each kind. It takes the same short time for a
// state of any size.
func (m *Machine) Counts() Counts {
	return Counts{
		Sessions: len(m.sessions) - m.ending.Len, Locks: len(m.locks.byName), Elections: len(m.elections.byName),
		Semaphores: len(m.semaphores.byName), Waiters: m.waiting,
		Keys: m.keys.tree.Len(), Checks: m.checks.Len(), Clients: m.registry.clients,
	}
}

// Approximate bytes on disk, and in a snapshot, of what is not a key: see
// docs/PERFORMANCE.md.
const (
	sessionSize = 64
	heldSize    = 56 // a lock, an election, a share or a semaphore, without its value and label
)

// Size returns the approximate size of the state in bytes, as a snapshot carries it. It
// costs nothing.
func (m *Machine) Size() uint64 {
	held := len(m.locks.byName) + len(m.elections.byName) + len(m.semaphores.byName) + m.shares
	return uint64(m.keys.bytes + m.candidates + m.labels + m.semaphores.numbers.Bytes() + len(m.sessions)*sessionSize + held*heldSize)
}
