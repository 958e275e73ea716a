package machine

import (
	"github.com/conclave-go/conclave/internal/wire"
)

// nextFences reserves n fences and returns the first. There must be as many.
func (m *Machine) nextFences(n uint64) (first uint64) {
	first = m.fence() + 1
	m.fences += n
	return first
}

// fence is the largest fence granted so far.
func (m *Machine) fence() uint64 { return uint64(m.epoch)<<48 | m.fences }

// exhausted refuses rather than granting a fence twice.
func (m *Machine) exhausted() *wire.Reply {
	return m.refuse(wire.Code_TOO_LARGE, "all fences of this epoch are used; raise the epoch by recovery")
}
