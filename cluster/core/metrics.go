package core

import (
	"github.com/conclave-go/conclave/internal/metrics"
	"github.com/conclave-go/conclave/internal/tickets"
)

// Metrics is what a core counts and measures. Other goroutines may read it at any time.
type Metrics struct {
	Commit   *metrics.Histogram // ns from the proposal of each entry by this leader until it is applied here
	Commands *metrics.Histogram // in each entry that this leader has proposed
	Resent   metrics.Counter    // commands that were sent again, as their outcomes had not come
}

func newMetrics() *Metrics {
	return &Metrics{Commit: metrics.NewDurations(), Commands: metrics.New(0, 12)}
}

// Metrics returns what this core counts.
func (c *Core) Metrics() *Metrics { return c.metrics }

// Backlog is the calls of a process without an outcome.
type Backlog = tickets.Backlog

// Backlog returns the calls that the core has.
func (c *Core) Backlog() Backlog { return c.tickets.Backlog() }
