package client

import (
	"sync/atomic"

	"github.com/conclave-go/conclave/internal/metrics"
)

// Metrics is what a client counts and measures. It may be read at any time.
type Metrics struct {
	// Margin is for how long (ns) each lease would have lasted when its renewal was
	// acknowledged, but for its checks.
	Margin *metrics.Histogram
	Kept   metrics.Counter // grants of lingering locks by this process
	Lost   metrics.Counter // holds that were lost

	Shards        atomic.Int64    // that this process works on
	ShardsMoved   metrics.Counter // that it was asked to release, as they move or their number changes
	ShardsOverdue metrics.Counter // that it has released before the work on them had returned
}

// Metrics returns what the client counts.
func (c *Client) Metrics() *Metrics { return &c.metrics }
