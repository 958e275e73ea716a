package virtualtime

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// In a group that is upgraded from a build without labels, what was requested before has
// none, and its times are unknown; what is requested afterwards has both.
func TestUpgrade_LabelsAndTimes(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		lasting := grouptest.MustSession(g.T, g.Nodes[0], grouptest.Lasting())
		fence := grouptest.MustLock(g.T, lasting.FencedLock("x", conclave.WithLabel("before")))
		explain := func() conclave.Explanation {
			e, err := g.Nodes[0].Explain(g.T.Context(), "x")
			grouptest.Must(g.T, err)
			return e
		}
		if h := explain().Holder; h.Label != "" || h.Since >= 0 {
			g.T.Errorf("below the level: %+v", h)
		}
		for _, i := range g.All() {
			g.Kill(i)
			g.Seams[i].FeatureLevel = wire.LevelLabel
			g.Start(i)
		}
		pass(time.Minute) // the leader raises the level
		wantLevel(g, 0, wire.LevelLabel)
		grouptest.StartLock(g.T, g.Nodes[1].FencedLock("x", conclave.WithLabel("after")))
		pass(20 * time.Second)
		e := explain()
		if h := e.Holder; e.Fence != fence || h.Label != "" || h.Since >= 0 {
			g.T.Errorf("held since before the upgrade: %+v", h)
		}
		if w := e.Queue[0]; w.Label != "after" || w.Since < 10*time.Second || w.Since > 30*time.Second {
			g.T.Errorf("waits since after the upgrade: %+v", w)
		}
	}, grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.FeatureLevel = wire.LevelLinger }))
}
