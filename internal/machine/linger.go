package machine

import (
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// A lingering lock is kept by its owner, a process, for a tenure. In it the process grants
// the lock to its own callers, each time with the next fence of a block that was reserved for
// the tenure. As the counter of the fences is behind the block, each later grant of the
// group has a larger one. When another owner comes, the process is recalled.

const (
	firstBlock = 16    // fences, reserved with the grant: most tenures see few grants
	MaxBlock   = 4_096 // fences of one Refill; a process that asks without need uses up an epoch in months
)

// mayLinger reports whether the request is for a tenure.
func (m *Machine) mayLinger(c *wire.Lock) bool {
	return c.Lingering && !c.Election && m.levels.agreed >= wire.LevelLinger
}

// block is how many fences the grant of w takes.
func (w *waiter) block() uint64 {
	if w.lingering {
		return firstBlock
	}
	return 1
}

// recall recalls the last in line, behind which another owner is about to queue: the last
// waiter, or the owner if there is none. So a tenure is recalled when the first one queues
// behind it, and admits no newcomer that came later, even before it begins.
func (m *Machine) recall(l *lock) {
	if l.extra == nil || l.extra.queue.Last() == nil {
		m.recallOwner(l)
	} else if w := l.extra.queue.Last(); w.lingering && !w.session.dead() {
		m.recalls = append(m.recalls, fact.Recall{Session: w.session.id, Incarnation: w.session.process(), Lock: l.name(), Handle: w.handle})
	}
}

func (m *Machine) recallOwner(l *lock) {
	if l.lingering && !l.owner.dead() {
		m.recalls = append(m.recalls, fact.Recall{Session: l.owner.id, Incarnation: l.owner.process(), Lock: l.name(), Handle: l.handle})
	}
}

// refill reserves another block of fences for a tenure.
func (m *Machine) refill(c *wire.Refill) *wire.Reply {
	if r := m.checkName(c.Name); r != nil {
		return r
	}
	s, refusal := m.live(c.Session)
	if s == nil {
		return refusal
	}
	l, refusal := m.holdOf(s, false, c.Name, c.Handle, c.Fence)
	switch n := uint64(min(c.Fences, MaxBlock)); {
	case l == nil:
		return refusal
	case !l.lingering:
		return m.refuse(wire.Code_INVALID, "the lock does not linger")
	case n == 0:
		return m.refuse(wire.Code_INVALID, "the block is empty: want 1 to 4096 fences")
	case m.fences+n > maxFences:
		return m.exhausted()
	default:
		r := m.reply(wire.Code_OK)
		r.Fence, r.Block = m.nextFences(n), uint32(n)
		return r
	}
}
