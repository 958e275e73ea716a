package cluster

import (
	"time"

	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/storage"
)

// Health is what a member knows of its own condition. None of it needs the loop.
type Health struct {
	Status
	replica.Health
	// Stopped is ErrStopped once the member has begun to stop, with the cause; nil before.
	Stopped error
	// Shortage is what the process lacks that an access to the disk waits for, since Waited;
	// nil: none waits.
	Shortage error
	Waited   time.Duration
	// Space is what the disk has left, up to 10 s ago.
	Space storage.Space
	// Reachable is how many of the Voters this member is connected to, or is itself; of a joint
	// configuration, in the half that is nearest to the loss of its majority.
	Reachable, Voters int
}

// Health returns the current condition. It never blocks.
func (m *Member) Health() Health {
	s, health := m.replica.Health()
	h := Health{Status: m.statusOf(s), Health: health}
	if m.lifetime.Err() != nil {
		h.Stopped = m.stopped()
	}
	h.Reachable, h.Voters = m.reach(h.Conf)
	h.Waited, h.Shortage = m.store.Shortage()
	h.Space = m.metrics.Disk()
	return h
}
