package cluster

import (
	"log/slog"

	"github.com/conclave-go/conclave/internal/wire"
)

// quorumLog logs when the quorum is lost and regained, as gossip shows it. Before it
// was there for the first time it is not lost.
type quorumLog struct{ seen, lost bool }

func (q *quorumLog) note(to *slog.Logger, roster *rosterSnapshot) {
	switch quorum := roster.hasQuorum(); {
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

// leaderLog logs when another member leads than before. It belongs to the loop.
type leaderLog struct{ last uint64 }

func (l *leaderLog) note(to *slog.Logger, leader, term uint64) {
	if leader == 0 || leader == l.last {
		return // without a leader, the next one is worth a line
	}
	l.last = leader
	to.Info("leader changed", "leader", wire.MemberID(leader), "term", term)
}
