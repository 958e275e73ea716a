package client

import (
	"log/slog"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/metrics"
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

// losses logs and reports what is lost.
type losses struct {
	lines  lossLog
	log    *slog.Logger
	lost   *metrics.Counter // Metrics.Lost
	report func(name string, fence uint64)

	// underWay counts what has ended and is not reported yet. It grows while the mu of the lease is held: Stopped, which ends each lease, comes after, and Wait
	// after that.
	underWay sync.WaitGroup
}

// note logs the loss of a lease and of its holds, and reports each hold.
func (s *losses) note(l *Lease, holds map[*Hold]struct{}, why error) {
	if skipped, ok := s.lines.allow(); ok {
		s.log.Warn("session lost", "session", l.id, "holds", len(holds), "error", why, "skipped", skipped)
	}
	for h := range holds {
		if skipped, ok := s.lines.allow(); ok {
			s.log.Warn("lock lost", "name", h.name, "fence", h.now().fence, "session", l.id, "skipped", skipped)
		}
		s.lost.Add(1)
		s.report(h.name, h.now().fence)
	}
}

// noteOverdue logs and reports the loss of a hold that lasted for as long as it was to.
func (s *losses) noteOverdue(h *Hold) {
	if skipped, ok := s.lines.allow(); ok {
		s.log.Warn("hold expired", "name", h.name, "fence", h.now().fence, "session", h.lease.id, "skipped", skipped)
	}
	s.lost.Add(1)
	s.report(h.name, h.now().fence)
}
