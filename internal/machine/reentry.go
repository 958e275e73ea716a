package machine

import (
	"github.com/conclave-go/conclave/internal/wire"
)

// reenter adds a hold. It has no ticket of its own: it was never queued.
func (m *Machine) reenter(l *lock, limit uint32) *wire.Reply {
	if l.holds >= MaxHolds || limit != 0 && l.holds >= limit {
		return m.reply(wire.Code_LIMIT_REACHED)
	}
	l.holds++
	m.dirty.put(l.key, l)
	return m.holding(l)
}
