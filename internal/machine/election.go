package machine

import (
	"bytes"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// An election is a lock in a space of its own. Its owner is the leader and has a
// value.

// elect makes the owner of an election its leader with the value.
func (m *Machine) elect(l *lock, value []byte) {
	m.candidates += len(value) - l.leader().Bytes()
	l.more().leader = &fact.Leader{Value: value, Fence: l.fence, Session: l.owner.id, Member: l.owner.member}
}

// leaderNow returns the leader, or nil if its session has ended.
func (l *lock) leaderNow() *fact.Leader {
	if l.owner != nil && l.owner.dead() {
		return nil
	}
	return l.leader()
}

// leads emits the present leader, or that there is none.
func (m *Machine) leads(l *lock) {
	m.leaders = append(m.leaders, fact.LeaderChange{Election: l.name(), Leader: l.leader()})
}

// checkCandidate returns nil or the refusal of a candidate's value.
func (m *Machine) checkCandidate(c *wire.Lock) *wire.Reply {
	if !c.Election && len(c.Value) > 0 {
		return m.refuse(wire.Code_INVALID, "invalid value: only an election has one")
	}
	return m.checkLeaderValue(c.Value, 0)
}

// checkLeaderValue returns nil or the refusal of a value in place of which one of so many bytes is not needed any more.
func (m *Machine) checkLeaderValue(value []byte, replaced int) *wire.Reply {
	switch {
	case len(value) > MaxCandidate:
		return m.refuse(wire.Code_TOO_LARGE, "the value is too long: at most 64 KiB")
	case m.levels.agreed >= wire.LevelShorter && len(value) <= replaced:
	case m.candidates-replaced+len(value) > m.limit(MaxCandidates, ReservedCandidates):
		return m.refuse(wire.Code_BUSY, "the values of all elections take too much; propose a shorter one")
	}
	return nil
}

func (m *Machine) proclaim(c *wire.Proclaim) *wire.Reply {
	if r := m.checkName(c.Name); r != nil {
		return r
	}
	replaced := 0
	if l := m.elections.byName[c.Name]; l != nil && m.levels.agreed >= wire.LevelShorter {
		replaced = l.leader().Bytes() // of another leader: refused below
	}
	if r := m.checkLeaderValue(c.Value, replaced); r != nil {
		return r
	}
	s, refusal := m.live(c.Session)
	if s == nil {
		return refusal
	}
	l, refusal := m.holdOf(s, &m.elections, c.Name, c.Handle, c.Fence)
	if l == nil {
		return refusal
	}
	if !bytes.Equal(l.leader().Value, c.Value) {
		m.elect(l, c.Value)
		m.dirty.put(l.key, l)
		m.leads(l)
	}
	return m.holding(l)
}
