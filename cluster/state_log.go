package cluster

import (
	"log/slog"
	"time"

	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// quorumLog logs when the quorum is lost and regained, according to gossip. A quorum
// that has not been reached since the start is not lost.
type quorumLog struct{ seen, lost bool }

func (q *quorumLog) note(to *slog.Logger, seen *roster.Snapshot) {
	switch quorum := seen.HasQuorum(); {
	case quorum && q.lost:
		to.Info("quorum regained")
	case !quorum && q.seen && !q.lost:
		to.Warn("quorum lost", "remedy", "no command commits without a majority of the voters: start those that are down, or repair the network to them")
	default:
		q.seen = q.seen || quorum
		return
	}
	q.lost = !q.lost
}

// redundancyLog logs changes of the redundancy. At its start a member has not received the gossip of all others: the
// first line waits for them, and no longer than for settleTime.
type redundancyLog struct {
	began time.Time
	known bool
	last  int
}

const settleTime = 10 * time.Second

// note takes how many more voters may fail now, and the voters that are down. A group of one or two voters has no
// redundancy by its choice; one that loses its redundancy has a warning.
func (l *redundancyLog) note(to *slog.Logger, now int, down []uint64, at time.Time) {
	switch {
	case l.began.IsZero():
		l.began = at
	case l.known && l.last == now:
		return
	}
	if !l.known && len(down) > 0 && at.Sub(l.began) < settleTime {
		return
	}
	fell := l.known && now < l.last
	l.known, l.last = true, now
	attrs := []any{"redundancy", now}
	if len(down) > 0 {
		attrs = append(attrs, "down", wire.MemberIDs(down))
	}
	switch {
	case now < 0:
		to.Warn("redundancy changed", append(attrs, "remedy", "there is no quorum, and no command commits: start the voters that are down")...)
	case now == 0 && (fell || len(down) > 0):
		to.Warn("redundancy changed", append(attrs, "remedy", "the next failure stops the group: start the voters that are down, or add members in their place")...)
	default:
		to.Info("redundancy changed", attrs...)
	}
}

// logCrash logs what the group has recorded of a member's process on the word of its voters.
func logCrash(to *slog.Logger, c fact.CrashReport) {
	if !c.Crashed {
		to.Info("process runs: it was taken for crashed", "member", wire.MemberID(c.Member), "boot", c.Boot)
		return
	}
	to.Warn("process taken for crashed", "member", wire.MemberID(c.Member), "boot", c.Boot,
		"remedy", "sessions with its check process have ended: start it again; if it runs, find what closes its connections and refuses others")
}

// logLiveness logs what the group has recorded of a member's process.
func logLiveness(to *slog.Logger, member uint64, alive bool) {
	if alive {
		to.Info("liveness changed", "member", wire.MemberID(member), "alive", true)
		return
	}
	to.Warn("liveness changed", "member", wire.MemberID(member), "alive", false,
		"remedy", "unless it was stopped on purpose: start it again, or look at its machine and at the network to it")
}
