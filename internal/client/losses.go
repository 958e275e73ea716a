package client

import (
	"sync"
	"time"
)

// lossLog bounds the log lines about losses. A process can lose a hundred thousand
// sessions, and a session as many holds, at one moment.
type lossLog struct {
	mu      sync.Mutex
	since   time.Time // guarded by mu; begin of the current period
	lines   int       // guarded by mu; in this period
	skipped int       // guarded by mu; since the last line
}

const (
	lossPeriod = 10 * time.Second
	lossLines  = 32 // per period
)

// allow reports whether a line may be written now, and how many were skipped since the
// last one.
func (l *lossLog) allow() (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.since) >= lossPeriod {
		l.since, l.lines = now, 0
	}
	if l.lines++; l.lines > lossLines {
		l.skipped++
		return 0, false
	}
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}

// reportLost logs the loss of a lease and of its holds, and reports each hold.
func (c *Client) reportLost(l *Lease, holds map[*Hold]struct{}, why error) {
	if skipped, ok := c.losses.allow(); ok {
		c.log.Warn("session lost", "session", l.id, "holds", len(holds), "error", why, "skipped", skipped)
	}
	for h := range holds {
		if skipped, ok := c.losses.allow(); ok {
			c.log.Warn("lock lost", "name", h.name, "fence", h.fence, "session", l.id, "skipped", skipped)
		}
		c.metrics.Lost.Add(1)
		c.cfg.HoldLost(h.name, h.fence)
	}
}
