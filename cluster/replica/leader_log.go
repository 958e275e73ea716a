package replica

import (
	"log/slog"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// leaderLog logs changes of the leader, and the time without one. It is used on the loop only.
type leaderLog struct {
	last    uint64
	watched time.Duration // when watch was called last; 0: never
	contact time.Duration // when there was contact to a leader last, or the watch began
	missing bool          // that there is none is logged
}

func (l *leaderLog) note(to *slog.Logger, leader, term uint64) {
	if leader == 0 || leader == l.last {
		return // the next leader is logged
	}
	l.last = leader
	to.Info("leader changed", "leader", wire.MemberID(leader), "term", term)
}

// watch takes whether there is contact to a leader, 0: none is known, and logs when there has been none for longer
// than patience, in which an election succeeds. The time in which the loop itself did not run does not count.
func (l *leaderLog) watch(to *slog.Logger, contact bool, leader uint64, now, patience time.Duration) {
	began := l.watched == 0 || now-l.watched > patience
	l.watched = now
	switch {
	case contact && l.missing:
		l.missing = false
		to.Info("leader found", "leader", wire.MemberID(leader), "after", (now - l.contact).Round(time.Millisecond))
	case !contact && !began && !l.missing && now-l.contact > patience:
		l.missing = true
		to.Warn("no leader", "last", wire.MemberID(l.last), "after", (now - l.contact).Round(time.Millisecond),
			"remedy", "this member serves no command without a leader: start the voters that are down, or repair the network to them")
	}
	if contact || began && !l.missing {
		l.contact = now
	}
}
