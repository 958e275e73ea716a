package cluster

import (
	"context"

	"github.com/conclave-go/conclave/cluster/core"
)

// writeLastCheckpoint writes the state that was applied last, so that the next start has
// nothing to apply again. It runs when the loop has ended.
func (m *Member) writeLastCheckpoint() {
	if !m.ended || context.Cause(m.lifetime) != errClosed {
		return
	}
	op, ok := m.core.LastCheckpoint()
	if !ok {
		return
	}
	if err := m.raftLog.Execute(op); err != nil {
		m.log.Warn("last checkpoint not written", "dir", m.cfg.Dir, "error", err)
	}
}

// checkpoint has the loop write the applied state soon.
func (m *Member) checkpoint() {
	m.post(event{run: func(c *core.Core) { c.Checkpoint() }})
}
