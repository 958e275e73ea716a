package replica

import (
	"sync/atomic"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/metrics"
)

// Metrics is what a replica counts and measures. Other goroutines may read it at any time.
type Metrics struct {
	Commit   *metrics.Histogram // ns from the proposal of each entry by this leader until it is applied here
	Commands *metrics.Histogram // in each entry that this leader has proposed
	Writes   *metrics.Histogram // ns from the loop's request to write a batch until it is written
	Resent   *metrics.Counter   // commands sent again, as their outcomes had not come

	Refused           metrics.Counter // calls that were refused for Config.MaxCalls or MaxCallBytes
	Leaders           metrics.Counter // leaders that this member has followed, or was
	SnapshotsSent     metrics.Counter
	SnapshotBytesSent metrics.Counter // of snapshots that failed, too
	GroupTime         atomic.Int64    // ns, as far as entries are applied
}

// measure begins to measure a core and what is around it.
func (m *Metrics) measure(c *core.Metrics) {
	m.Commit, m.Commands, m.Resent = c.Commit, c.Commands, &c.Resent
	m.Writes = metrics.NewDurations()
}

// Metrics returns what this replica counts.
func (r *Replica) Metrics() *Metrics { return &r.metrics }
