package grouptest

import (
	"time"

	"github.com/conclave-go/conclave"
)

const lingering = 200 * time.Millisecond

// AwaitLingering blocks until locks can linger: the group has raised its feature level.
func (g *Group) AwaitLingering() {
	g.T.Helper()
	l := g.Nodes[0].FencedLock("probe", conclave.Linger(lingering))
	for ok := false; !ok; {
		MustLock(g.T, l)
		info, err := l.Info(Bounded(g.T))
		Must(g.T, err)
		ok = info.Lingering
		MustUnlock(g.T, l)
	}
}
