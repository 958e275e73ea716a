package cluster

import (
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/cluster/replica"
)

// Metrics is what a member counts and measures. Other goroutines may read it at any time.
type Metrics struct {
	*replica.Metrics
	DiskBytes atomic.Uint64 // size of the database, as of the last 10 s
	Clients   atomic.Int64  // attached to this member
}

// Metrics returns what this member counts.
func (m *Member) Metrics() *Metrics { return &m.metrics }

// sizeInterval is how often the size of the database is taken.
const sizeInterval = 10 * time.Second

// watchSize takes the size of the database now and then, on a goroutine of its own: a disk
// that hangs delays the answer, and nothing else may wait for that.
func (m *Member) watchSize() {
	again := time.NewTicker(sizeInterval)
	defer again.Stop()
	for {
		if n, err := m.store.DiskBytes(); err == nil {
			m.metrics.DiskBytes.Store(n)
		}
		select {
		case <-again.C:
		case <-m.lifetime.Done():
			return
		}
	}
}
