package groups

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster/replica"
	gt "github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// alone opens a directory as the only member of a group.
func alone(t *testing.T, dir string) *conclave.Node {
	t.Helper()
	n, err := conclave.Open(gt.Bounded(t), &conclave.Config{Dir: dir, HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gt.Kill(n) })
	return n
}

// The old cluster was recovered twice since the backup, so its fences are larger than those of the seed. Once that has run, it can be
// recovered as often.
func TestRecover_SeedOfOlderBackup(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "old")
	n := alone(t, dir)
	seed := restoredDir(t, backupOf(t, n))
	fenceOf := func() conclave.Fence { return gt.MustLock(t, n.FencedLock("x")) }
	var last conclave.Fence
	for range 2 {
		gt.Kill(n)
		gt.Must(t, conclave.Recover(t.Context(), dir))
		n = alone(t, dir)
		last = fenceOf()
	}
	for range 2 {
		gt.Kill(n)
		n = alone(t, seed)
		gt.Kill(n)
		gt.Must(t, conclave.Recover(t.Context(), seed))
		n = alone(t, seed)
	}
	if f := fenceOf(); f <= last {
		t.Errorf("fence %v after %v", f, last)
	}
}

// Verify reports how far the log of each group has got, so that the directories of several members can be compared.
func TestVerify_LogsOfGroups(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a")
	var last conclave.DirGroup
	for i := range 2 {
		n := alone(t, dir)
		gt.MustPut(t, create(t, n, "a").KV(), "k", fmt.Sprint(i))
		gt.Kill(n)
		info, err := conclave.Verify(dir)
		if err != nil || len(info.Groups) != 1 {
			t.Fatalf("%+v, %v", info, err)
		}
		g := info.Groups[0]
		if g.LastTerm <= last.LastTerm || g.Last <= last.Last || g.Commit <= last.Commit || g.Commit > g.Last {
			t.Errorf("%+v after %+v", g, last)
		}
		last = g
	}
}

// The directory of one member is recovered with all groups: their keys remain, their locks have ended, and their fences go on.
// Another member can join.
func TestRecover(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	a, b := create(t, g.Nodes[0], "a"), create(t, g.Nodes[1], "b")
	gt.MustPut(t, a.KV(), "k", "of a")
	gt.MustPut(t, b.KV(), "k", "of b")
	last := gt.MustLock(t, b.FencedLock("held"))
	gt.MustGet(t, g.Nodes[0].WithGroup("b").KV(), "k") // else a majority without this member may have all of b, which was written by another one
	dir := g.Configs[0].Dir
	g.KillAll()
	info, err := conclave.Verify(dir)
	if err != nil || len(info.Groups) != 2 || info.Groups[0].Name != "a" || info.Groups[1].Number != 2 || info.Groups[1].Keys > 1 {
		t.Fatalf("%+v, %v", info, err)
	}
	gt.Must(t, conclave.Recover(t.Context(), dir))
	if info, err = conclave.Verify(dir); err != nil || !info.Seed || len(info.Groups) != 2 {
		t.Fatalf("%+v, %v", info, err)
	}
	n := alone(t, dir)
	for _, name := range []string{"a", "b"} {
		if e := gt.MustGet(t, n.WithGroup(name).KV(), "k"); string(e.Value) != "of "+name {
			t.Errorf("group %s: %q", name, e.Value)
		}
	}
	if f := gt.MustLock(t, n.WithGroup("b").FencedLock("held")); f <= last {
		t.Errorf("fence %v after %v", f, last)
	}
	other, err := conclave.Open(gt.Bounded(t), &conclave.Config{
		Dir: filepath.Join(t.TempDir(), "other"), Join: []string{n.Addr()}, HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond,
	})
	gt.Must(t, err)
	t.Cleanup(func() { gt.Kill(other) })
	if e := gt.MustGet(t, other.WithGroup("a").KV(), "k"); string(e.Value) != "of a" {
		t.Errorf("%q", e.Value)
	}
}

// Verify shows that a member's state differs in one of its groups, whichever that is: the member does not start from the directory, and no new group begins with it.
func TestVerify_DivergenceOfGroup(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a")
	n := alone(t, dir)
	create(t, n, "a")
	gt.Kill(n)
	store, err := storage.Open(storage.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	gt.Must(t, err)
	log, err := raftlog.Open(store)
	gt.Must(t, err)
	of, err := log.OpenGroup(1)
	gt.Must(t, err)
	record, err := proto.Marshal(&wire.Divergence{Version: wire.DivergenceVersion, Index: 7})
	gt.Must(t, err)
	gt.Must(t, of.SetLocal(replica.DivergenceRecord, record))
	gt.Must(t, store.Close())

	if info, err := conclave.Verify(dir); err != nil || !info.Diverged {
		t.Errorf("diverged: %t, %v", info.Diverged, err)
	}
	_, err = conclave.Open(gt.Bounded(t), &conclave.Config{Dir: dir})
	gt.WantError(t, err, conclave.ErrCorrupt)
	gt.WantError(t, conclave.Recover(t.Context(), dir), conclave.ErrCorrupt)
}
