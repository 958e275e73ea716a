package machine

// Approximate bytes on disk, and in a snapshot, of what is not a key: see
// docs/PERFORMANCE.md.
const (
	sessionSize = 64
	heldSize    = 56 // a lock, an election or a semaphore, without its value and label
)

// Size returns the approximate size of the state in bytes, as a snapshot carries it. It
// costs nothing.
func (m *Machine) Size() uint64 {
	held := len(m.locks.byName) + len(m.elections.byName) + len(m.semaphores.byName)
	return uint64(m.keys.bytes + m.candidates + m.labels + len(m.sessions)*sessionSize + held*heldSize)
}
