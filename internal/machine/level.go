package machine

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/wire"
)

// The feature level decides which commands mean something. It is part of the state, so all
// members agree on it, whatever their builds support. A group begins at the highest level that all
// its founders support (FirstState), one with a founder of a build from before level 6 at level 1. A
// command of a higher level is submitted only once the group is there.

// levels are the group's feature level and the highest that this build supports.
type levels struct{ agreed, supported uint32 }

// firstLevel is that of an empty state, and of a member that states none.
const firstLevel = 1

// Level returns the group's feature level, and the highest that this build supports. With
// a higher agreed one the machine must not be used: it does not know all commands.
func (m *Machine) Level() (agreed, supported uint32) { return m.levels.agreed, m.levels.supported }

// raiseLevel raises the feature level if every member supports it. Members that are lost may
// be ignored by force; they stop when they meet the level. A registered process is not
// lost: no member can stop the others by a level of its own.
func (m *Machine) raiseLevel(inc *incarnation, c *wire.RaiseLevel) *wire.Reply {
	switch {
	case c.Level <= m.levels.agreed:
		return m.reply(wire.Code_OK)
	case c.Level > m.supports(inc.member):
		return m.refuse(wire.Code_LEVEL, "the member that raises the level does not support it")
	case !c.Force && m.common(c.Members) < c.Level:
		return m.refuse(wire.Code_LEVEL, "not every member supports the level: upgrade all of them first")
	case m.runsBelow(c.Level):
		return m.refuse(wire.Code_LEVEL, "a process that runs does not support the level: stop or upgrade it first")
	}
	m.raiseTo(c.Level)
	return m.reply(wire.Code_OK)
}

// raiseTo sets the feature level to a higher one.
func (m *Machine) raiseTo(level uint32) {
	m.levels.agreed, m.listed = level, true
	for _, k := range m.members { // order: each by itself
		m.visits.Count()
		k.listBuiltIn(m)
	}
}

// runsBelow reports whether a registered process of a member does not support the level. That
// of a client decides nothing: it has no state.
func (m *Machine) runsBelow(level uint32) bool {
	for inc := range m.registry.all() {
		if !inc.client && m.supports(inc.member) < level {
			return true
		}
	}
	return false
}

// NextLevel returns the highest feature level that every member supports, if the group can
// be raised to it, and 0 otherwise. members are those of Raft's configuration, which may
// not have registered yet.
func (m *Machine) NextLevel(members []uint64) uint32 {
	if level := m.common(members); level > m.levels.agreed {
		return level
	}
	return 0
}

// common returns the highest level that all members support: those that
// were not removed, and the given ones.
func (m *Machine) common(members []uint64) uint32 {
	lowest := ^uint32(0)
	for id := range m.members { // order: the minimum does not depend on it
		m.visits.Count()
		lowest = min(lowest, m.supports(id))
	}
	for _, id := range members {
		lowest = min(lowest, m.supports(id))
	}
	return lowest
}

// supports returns the highest level that the member's last process supports; a member
// that has not registered supports the first.
func (m *Machine) supports(id uint64) uint32 {
	if k := m.known(id); k != nil {
		return max(k.level, firstLevel)
	}
	return firstLevel
}

// check returns an error if this build does not know the level.
func (l levels) check() error {
	if l.agreed > l.supported {
		return fmt.Errorf("%w: the group's feature level is %d, this build supports up to %d", ErrNewer, l.agreed, l.supported)
	}
	return nil
}
