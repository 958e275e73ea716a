package cluster

import (
	"log/slog"

	"github.com/conclave-go/conclave/cluster/roster"
)

// quorumLog logs when the quorum is lost and regained, according to gossip. A quorum
// that has not been reached since the start is not lost.
type quorumLog struct{ seen, lost bool }

func (q *quorumLog) note(to *slog.Logger, seen *roster.Snapshot) {
	switch quorum := seen.HasQuorum(); {
	case quorum && q.lost:
		to.Info("quorum regained")
	case !quorum && q.seen && !q.lost:
		to.Warn("quorum lost")
	default:
		q.seen = q.seen || quorum
		return
	}
	q.lost = !q.lost
}
