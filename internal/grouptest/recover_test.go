package grouptest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/testport"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// verify returns what a directory is, and checks that looking at it changes nothing.
func verify(t testing.TB, dir string) conclave.DirInfo {
	t.Helper()
	before := filesOf(t, dir)
	info, err := conclave.Verify(dir)
	Must(t, err)
	if after := filesOf(t, dir); !maps.Equal(before, after) {
		t.Errorf("%s has changed", dir)
	}
	return info
}

func filesOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	Must(t, err)
	files := make(map[string]string)
	for _, e := range list {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		Must(t, err)
		files[e.Name()] = string(text)
	}
	return files
}

// Each survivor of a lost group can be recovered with what it has, and the one that
// Verify shows to be the furthest has everything that was acknowledged.
func TestRecover_Survivor(t *testing.T) {
	t.Parallel()
	for round := range 3 {
		g := Start(t, 3)
		s := MustSession(t, g.Nodes[0], Lasting())
		largest := MustLock(t, s.FencedLock("x"))
		MustAcquireKey(t, g.Nodes[0].KV(), "locked", "v", s)
		for i := range 20 {
			MustPut(t, g.Nodes[round].KV(), "k", fmt.Sprint(i))
		}
		_, err := conclave.Verify(g.Configs[0].Dir)
		if !errors.Is(err, storage.ErrInUse) {
			t.Errorf("a directory in use: %v", err)
		}
		if err := conclave.Recover(t.Context(), g.Configs[0].Dir); !errors.Is(err, storage.ErrInUse) {
			t.Errorf("recovered a directory in use: %v", err)
		}
		for _, i := range g.All() {
			g.AwaitApplied(i) // a majority acknowledges without the third one
		}
		g.KillAll()
		best := conclave.DirInfo{}
		for _, c := range g.Configs {
			info := verify(t, c.Dir)
			if info.Group != "conclave" || info.Cluster == "" || info.Boots != 1 || info.Seed || len(info.Voters) != 3 || info.Sessions != 1 || info.Fence < largest || info.Epoch() != 0 {
				t.Errorf("%+v", info)
			}
			if info.LastTerm > best.LastTerm || info.LastTerm == best.LastTerm && info.Last > best.Last {
				best = info
			}
		}
		Must(t, conclave.Recover(t.Context(), best.Dir))
		seed := verify(t, best.Dir)
		if !seed.Seed || seed.Epoch() != 1 || seed.Member == best.Member || seed.Cluster == best.Cluster || len(seed.Voters) != 1 || seed.Sessions != 0 {
			t.Errorf("%+v after %+v", seed, best)
		}
		Must(t, conclave.Recover(t.Context(), best.Dir)) // no effect before a member has started
		if again := verify(t, best.Dir); again.Member != seed.Member || again.Epoch() != 1 {
			t.Errorf("%+v after %+v", again, seed)
		}
		c := SoloConfig(t)
		c.Dir = best.Dir
		n := openSolo(t, c)
		if e := MustGet(t, n.KV(), "k"); string(e.Value) != "19" {
			t.Errorf("%q was acknowledged, %q was recovered", "19", e.Value)
		}
		if f := MustLock(t, n.FencedLock("x")); f <= largest {
			t.Errorf("fence %v after %v", f, largest)
		}
		if e := MustGet(t, n.KV(), "locked"); e.Session != (conclave.SessionID{}) {
			t.Errorf("%+v", e)
		}
	}
}

// What is in the log of the survivor and not known to be committed is counted by Verify
// and applied by Recover: a lost majority may have acknowledged it.
func TestRecover_Uncommitted(t *testing.T) {
	t.Parallel()
	var losing atomic.Bool
	// The next leader would have an entry of its own in flight.
	g := Start(t, 3, LongElections, Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { LoseAppends(s, losing.Load) }))
	g.AwaitLevel(wire.FeatureLevel) // the group proposes nothing by itself then
	n := g.Nodes[g.Leader()]
	MustPut(t, n.KV(), "k", "committed")
	losing.Store(true) // the leader goes on to lead
	ctx, cancel := context.WithCancel(t.Context())
	put := make(chan error, 1)
	go func() {
		_, err := n.KV().Put(ctx, "k", []byte("not committed"))
		put <- err
	}()
	dir := g.Configs[g.awaitStalled()].Dir
	cancel()
	WantError(t, <-put, conclave.ErrUnknown)
	g.KillAll()
	info := verify(t, dir)
	if info.Uncertain() == 0 || info.Last <= info.Commit || !strings.Contains(info.String(), "not known to be committed") {
		t.Fatalf("%+v\n%v", info, info)
	}
	Must(t, conclave.Recover(t.Context(), dir))
	c := SoloConfig(t)
	c.Dir = dir
	if e := MustGet(t, openSolo(t, c).KV(), "k"); string(e.Value) != "not committed" {
		t.Errorf("%+v", e)
	}
}

// awaitStalled blocks until a member leads that has an entry in flight.
func (g *Group) awaitStalled() (leader int) {
	g.T.Helper()
	stalled := func(i int) bool {
		s := g.Nodes[i].Status()
		return s.Leader == s.ID && g.Nodes[i].Metrics().Stalled > 0
	}
	if !g.poll(g.patience, func() bool {
		leader = slices.IndexFunc(g.All(), stalled)
		return leader >= 0
	}) {
		g.T.Fatal("no leader has an entry in flight")
	}
	return leader
}

// Directories from which no group can begin are refused, and not changed.
func TestRecover_Refuses(t *testing.T) {
	t.Parallel()
	left := Start(t, 2)
	Must(t, left.Nodes[1].Leave(Bounded(t)))
	left.KillAll()

	waiting := SoloConfig(t) // never in a group
	waiting.Expect, waiting.Join = 2, []string{testport.Addr(t)}
	if n, err := conclave.Open(Within(t, 300*time.Millisecond), &waiting); err == nil {
		Kill(n)
		t.Fatal("a group of one of two")
	}

	damaged := SoloConfig(t)
	formed(t, damaged)
	spoil(t, filepath.Join(damaged.Dir, "*.log"), flipped)

	newer := SoloConfig(t)
	formed(t, newer)
	Must(t, os.WriteFile(filepath.Join(newer.Dir, "CONCLAVE"), []byte("conclave data directory, format 999\n"), 0o600))

	missing := filepath.Join(t.TempDir(), "none")
	for dir, want := range map[string]error{
		left.Configs[1].Dir: conclave.ErrRemoved, waiting.Dir: conclave.ErrInvalid, damaged.Dir: conclave.ErrCorrupt,
		newer.Dir: conclave.ErrUpgradeRequired, foreignDirectory(t): storage.ErrForeign, t.TempDir(): storage.ErrForeign,
		missing: os.ErrNotExist, "": conclave.ErrInvalid,
	} {
		WantError(t, conclave.Recover(t.Context(), dir), want)
		if want != conclave.ErrRemoved && dir != waiting.Dir {
			_, err := conclave.Verify(dir)
			WantError(t, err, want)
		}
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if info := verify(t, left.Configs[1].Dir); !info.Removed {
		t.Errorf("%+v", info)
	}
	if info := verify(t, waiting.Dir); info.Cluster != "" || info.Seed || info.Boots != 1 || !strings.Contains(info.String(), "never belonged to a group") {
		t.Errorf("%+v\n%v", info, info)
	}
	intact := SoloConfig(t)
	formed(t, intact)
	before := filesOf(t, intact.Dir)
	WantError(t, conclave.Recover(Expired(), intact.Dir), context.Canceled)
	if !maps.Equal(before, filesOf(t, intact.Dir)) {
		t.Error("changed")
	}
}

// The directories of earlier versions can be verified and recovered.
func TestRecover_EarlierVersions(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		dir := filepath.Join(t.TempDir(), "copy")
		Must(t, os.CopyFS(dir, os.DirFS(fmt.Sprintf("testdata/compat/v0/member-%d", i))))
		info := verify(t, dir)
		if len(info.Voters) != 3 || info.Keys == 0 {
			t.Errorf("%+v", info)
		}
		Must(t, conclave.Recover(t.Context(), dir))
		c := SoloConfig(t)
		c.Dir, c.Group = dir, info.Group
		if f := MustLock(t, openSolo(t, c).FencedLock("x")); f <= info.Fence {
			t.Errorf("fence %v after %v", f, info.Fence)
		}
	}
}
