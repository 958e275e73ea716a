package replica

import (
	"log/slog"

	"github.com/conclave-go/conclave/internal/wire"
)

// leaderLog logs changes of the leader. It is used on the loop only.
type leaderLog struct{ last uint64 }

func (l *leaderLog) note(to *slog.Logger, leader, term uint64) {
	if leader == 0 || leader == l.last {
		return // the next leader is logged
	}
	l.last = leader
	to.Info("leader changed", "leader", wire.MemberID(leader), "term", term)
}
