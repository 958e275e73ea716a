//go:build unix

package process

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// A process that claims to support the older of these feature levels only is an older build
// by that.
const older, newer = 1, wire.LevelLinger

// awaitLevel waits until every member has applied the level.
func (g *processGroup) awaitLevel(want uint32) {
	g.t.Helper()
	for ctx := grouptest.Bounded(g.t); ctx.Err() == nil; {
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
		g := processesWith(t, n, memberConfig{TTL: 5 * time.Second, Level: older})
		w := newAuditor(t)
		load, end := context.WithCancel(grouptest.Bounded(t))
		var workers sync.WaitGroup
		work := func(p *process) {
			for _, lock := range []string{"a", lingering} {
				workers.Go(func() { w.work(load, p, lock) })
			}
		}
		for _, p := range g.members {
			work(p)
		}
		for i := range n - 1 {
			g.rebuild(i, newer)
			work(g.members[i])
			if i == n/2 { // halfway: one goes back, and one crashes
				g.rebuild(i, older)
				g.rebuild(i, newer)
				g.rebuild(n-1, older)
				work(g.members[i])
				work(g.members[n-1])
			}
			g.wantLevel(older)
		}
		g.rebuild(n-1, newer)
		g.awaitLevel(newer)
		end()
		workers.Wait()
		g.members[0].kill()
		// Its checkpoint is of the raised level, or the log behind it has the entry that raises it.
		g.wantOldBuildRefused(0, "newer build required")
		g.restart(0)
		cycle(g.members[0], "a", 3)
	}
}

// wantOldBuildRefused starts a killed member with the old build, which must stop since it
// needs an upgrade, for the reason that its error contains.
func (g *processGroup) wantOldBuildRefused(i int, reason string) {
	g.t.Helper()
	config := g.configs[i]
	config.Level, config.Timeout = older, 20*time.Second
	old := launch(g.t, g.members[i].addr)
	_, err := old.do(order{Do: "open", Config: config})
	if !errors.Is(err, conclave.ErrUpgradeRequired) || !strings.Contains(err.Error(), reason) {
		g.t.Fatalf("the old build is refused with: %v", err)
	}
	old.kill()
}

// withStandby starts a group of three voters and, as the last process, a standby.
func withStandby(t *testing.T) *processGroup {
	t.Helper()
	g := processesWith(t, 4, memberConfig{TTL: 5 * time.Second, Level: older})
	for i, p := range g.members {
		r, err := p.do(order{Do: "status"})
		mustSucceed(t, err)
		if r.Standby {
			g.members[i], g.members[3] = g.members[3], p
			g.configs[i], g.configs[3] = g.configs[3], g.configs[i]
			return g
		}
	}
	t.Fatal("no standby")
	return nil
}

// A standby is down while the level is raised, and returns with the old build. It stops at
// the entry of its log that raises the level, each time, and nothing is lost: with the new
// build it is the same member, and catches up with all that was written meanwhile.
func TestUpgrade_LaggingStandby(t *testing.T) {
	const standby = 3
	g := withStandby(t)
	before, err := g.members[standby].do(order{Do: "status"})
	mustSucceed(t, err)
	for _, i := range []int{standby, 0, 1} {
		g.rebuild(i, newer)
		g.wantLevel(older)
	}
	g.members[standby].kill()
	g.rebuild(2, newer)
	voters := &processGroup{t: t, members: g.members[:standby]}
	voters.awaitLevel(newer)
	w := newAuditor(t)
	ctx := grouptest.Bounded(t)
	load, end := context.WithCancel(ctx)
	defer end()
	var workers sync.WaitGroup
	for _, p := range voters.members {
		workers.Go(func() { w.work(load, p, "a") })
	}
	for range 2 {
		w.awaitProgress(ctx, voters.members)
		g.wantOldBuildRefused(standby, "applying entry")
	}
	w.awaitProgress(ctx, voters.members) // the others are not affected
	g.restart(standby)
	g.awaitLevel(newer)
	end()
	workers.Wait()
	after, err := g.members[standby].do(order{Do: "status"})
	if err != nil || after.Member != before.Member {
		t.Errorf("the standby was member %v and is %v: %v", before.Member, after.Member, err)
	}
	if f := g.members[standby].must("lock", "a"); f <= w.latest("a") {
		t.Errorf("the standby was granted fence %v after %v", f, w.latest("a"))
	}
}
