package cluster

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/storage"
)

// Metrics is what a member counts and measures. Other goroutines may read it at any time.
type Metrics struct {
	*replica.Metrics
	Space   atomic.Pointer[storage.Space] // of the disk, as of the last 10 s; nil: not known yet
	Clients atomic.Int64                  // attached to this member
}

// Metrics returns what this member counts.
func (m *Member) Metrics() *Metrics { return &m.metrics }

// Disk returns the space of the disk, as of the last 10 s; without a field until it is known.
func (m *Metrics) Disk() (s storage.Space) {
	if known := m.Space.Load(); known != nil {
		return *known
	}
	return s
}

// sizeInterval is how often the size of the database and the free space are taken.
const sizeInterval = 10 * time.Second

// watchSize takes the size of the database and the free space now and then, on a goroutine of its own: a disk
// that hangs delays the answer, and nothing else may wait for that.
func (m *Member) watchSize() {
	again := time.NewTicker(sizeInterval)
	defer again.Stop()
	short := false
	for {
		if s, err := m.store.Space(); err == nil {
			short = logSpace(m.log, m.cfg.Dir, short, s)
			m.metrics.Space.Store(&s)
		}
		select {
		case <-again.C:
		case <-m.lifetime.Done():
			return
		}
	}
}

// logSpace logs that the disk runs short of space, or does no more, and returns which it has logged last. Each flush takes space
// that a compaction frees again, so enough is a quarter more than what is needed.
func logSpace(log *slog.Logger, dir string, short bool, now storage.Space) bool {
	switch {
	case now.Short() && !short:
		log.Warn("disk almost full: the member stops when its next log does not fit: free space, or enlarge the disk",
			"dir", dir, "free", now.Free, "needed", now.Needed)
		return true
	case short && now.Free >= now.Needed+now.Needed/4:
		log.Info("disk has enough space again", "dir", dir, "free", now.Free)
		return false
	}
	return short
}
