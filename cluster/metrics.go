package cluster

import (
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/metrics"
)

// Metrics is what a member counts and measures. Other goroutines may read it at any time.
type Metrics struct {
	Commit   *metrics.Histogram // ns from the proposal of each entry by this leader until it is applied here
	Commands *metrics.Histogram // in each entry that this leader has proposed
	Writes   *metrics.Histogram // ns from the loop's request to write a batch until it is written
	Resent   *metrics.Counter   // commands sent again, as their outcomes had not come

	Refused           metrics.Counter // calls that were refused for Config.MaxCalls or MaxCallBytes
	Leaders           metrics.Counter // leaders that this member has followed, or was
	SnapshotsSent     metrics.Counter
	SnapshotBytesSent metrics.Counter // of snapshots that failed, too
	DiskBytes         atomic.Uint64   // size of the database, as of the last 10 s
	GroupTime         atomic.Int64    // ns, as far as entries are applied
	Clients           atomic.Int64    // attached to this member
}

// measure begins to measure the core and what is around it.
func (m *Member) measure() {
	c := m.core.Metrics()
	m.metrics.Commit, m.metrics.Commands, m.metrics.Resent = c.Commit, c.Commands, &c.Resent
	m.metrics.Writes = metrics.NewDurations()
}

// Metrics returns what this member counts.
func (m *Member) Metrics() *Metrics { return &m.metrics }

// Backlog returns how many calls of this process have no outcome yet, without the urgent
// ones, and the bytes of their commands.
func (m *Member) Backlog() (calls, bytes int) { return m.backlog.sum() }

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
