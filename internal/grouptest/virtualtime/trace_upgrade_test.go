package virtualtime

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// grants is a tracer that keeps the causes of grants. Its spans are all the same one.
type grants struct {
	mu     sync.Mutex
	causes []string // guarded by mu
}

func (g *grants) Begin(context.Context, conclave.Operation) conclave.Span { return g }
func (g *grants) Carrier() []byte                                         { return []byte("a release") }
func (g *grants) End(error)                                               {}

func (g *grants) Event(e conclave.SpanEvent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.Kind == conclave.SpanGranted {
		g.causes = append(g.causes, string(e.Cause))
	}
}

// In a group that is upgraded from a build without traces, grants have their causes once each
// member runs the newer build, and nothing else is different before.
func TestUpgrade_Traces(t *testing.T) {
	tracers := []*grants{{}, {}, {}}
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		contend := func() {
			held := g.Nodes[0].FencedLock("x")
			grouptest.MustLock(g.T, held)
			waiting := g.Nodes[1].FencedLock("x")
			w := grouptest.StartLock(g.T, waiting)
			grouptest.MustUnlock(g.T, held)
			grouptest.Must(g.T, <-w.Err)
			grouptest.MustUnlock(g.T, waiting)
		}
		contend()
		for _, i := range g.All() {
			g.Kill(i)
			g.Seams[i].FeatureLevel = wire.LevelTrace
			g.Start(i)
			contend()
		}
		pass(time.Minute) // the leader raises the level
		wantLevel(g, 0, wire.LevelTrace)
		contend()
		if want := []string{"", "", "", "", "a release"}; !slices.Equal(tracers[1].causes, want) {
			g.T.Errorf("causes %q, want %q", tracers[1].causes, want)
		}
	}, grouptest.Edit(func(i int, c *conclave.Config, s *cluster.Seams) {
		c.Tracer, s.FeatureLevel = tracers[i], wire.LevelLabel
	}))
}
