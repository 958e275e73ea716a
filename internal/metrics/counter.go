package metrics

import "sync/atomic"

// Counter counts.
type Counter struct{ n atomic.Uint64 }

// Add adds to the count.
func (c *Counter) Add(n uint64) { c.n.Add(n) }

// Load returns the count.
func (c *Counter) Load() uint64 { return c.n.Load() }
