//go:build unix

package process

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// newer is a feature level that this build does not have: a process may claim to support
// it, and is a newer build by that.
const newer = 2

// awaitLevel waits until every member has applied the level.
func (g *processGroup) awaitLevel(want uint32) {
	g.t.Helper()
	for ctx := grouptest.Within(g.t, 30*time.Second); ctx.Err() == nil; {
		there := 0
		for _, p := range g.members {
			if r, err := p.do(order{Do: "level"}); err == nil && r.Level == want {
				there++
			}
		}
		if there == len(g.members) {
			return
		}
		<-time.After(5 * time.Millisecond) // no report signals a change of level
	}
	g.t.Fatalf("the group is not at level %d", want)
}

// wantLevel fails the test unless all members are at the level.
func (g *processGroup) wantLevel(want uint32) {
	g.t.Helper()
	for i, p := range g.members {
		if r, err := p.do(order{Do: "level"}); err != nil || r.Level != want {
			g.t.Fatalf("process %d is at level %d, %v; want %d", i, r.Level, err, want)
		}
	}
}

// rebuild restarts a member with a build that supports a level.
func (g *processGroup) rebuild(i int, level uint32) {
	g.t.Helper()
	g.members[i].kill()
	g.configs[i].Level = level
	g.restart(i)
}

// A rolling upgrade under load, with a crash halfway: the level is raised when the last
// member supports it and not before, and a member can go back until then. Afterwards an
// old build is refused, and its directory opens again with the new one.
func TestUpgrade_Rolling(t *testing.T) {
	for _, n := range []int{3, 5} {
		if n == 5 && testing.Short() {
			continue
		}
		g := processesOf(t, n, 5*time.Second)
		w := newAuditor(t)
		load, end := context.WithCancel(grouptest.Within(t, 120*time.Second))
		var workers sync.WaitGroup
		work := func(p *process) { workers.Go(func() { w.work(load, p, "a") }) }
		for _, p := range g.members {
			work(p)
		}
		for i := range n - 1 {
			g.rebuild(i, newer)
			work(g.members[i])
			if i == n/2 { // halfway: one goes back, and one crashes
				g.rebuild(i, 1)
				g.rebuild(i, newer)
				g.rebuild(n-1, 1)
				work(g.members[i])
				work(g.members[n-1])
			}
			g.wantLevel(1)
		}
		g.rebuild(n-1, newer)
		g.awaitLevel(newer)
		end()
		workers.Wait()
		g.members[0].kill()
		config := g.configs[0]
		config.Level, config.Timeout = 1, 20*time.Second
		old := launch(t, g.members[0].addr)
		if _, err := old.do(order{Do: "open", Config: config}); !errors.Is(err, conclave.ErrUpgradeRequired) {
			t.Fatalf("the old build is refused with: %v", err)
		}
		old.kill()
		g.restart(0)
		cycle(g.members[0], "a", 3)
	}
}
