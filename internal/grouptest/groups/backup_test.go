package groups

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	gt "github.com/conclave-go/conclave/internal/grouptest"
)

// backedUp is a group, node or client of which there can be a backup.
type backedUp interface {
	Backup(ctx context.Context, w io.Writer) error
}

func backupOf(t *testing.T, of backedUp) []byte {
	t.Helper()
	var b bytes.Buffer
	gt.Must(t, of.Backup(gt.Bounded(t), &b))
	return b.Bytes()
}

// restored restores a backup, and opens the new cluster.
func restored(t *testing.T, backup []byte) *conclave.Node {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	gt.Must(t, conclave.Restore(t.Context(), dir, bytes.NewReader(backup)))
	return alone(t, dir)
}

// further returns the names of the further groups.
func further(t *testing.T, n *conclave.Node) (names []string) {
	t.Helper()
	for name, number := range numbers(t, n) {
		if number != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// use has a group hold a lock, and have a key of that value. It returns the fence.
func use(t *testing.T, g *conclave.Group, value string) conclave.Fence {
	t.Helper()
	gt.MustPut(t, g.KV(), "k", value)
	gt.MustLock(t, g.FencedLock("other"))
	return gt.MustLock(t, g.FencedLock("held"))
}

// wantRestored checks that a group has the key, that its lock is free, and that it grants a larger fence than all of the old ones.
func wantRestored(t *testing.T, g *conclave.Group, value string, old ...conclave.Fence) {
	t.Helper()
	if e := gt.MustGet(t, g.KV(), "k"); string(e.Value) != value {
		t.Errorf("%q, want %q", e.Value, value)
	}
	if f := gt.MustLock(t, g.FencedLock("held")); f <= slices.Max(old) {
		t.Errorf("fence %v after %v", f, old)
	}
}

// A backup has all groups, by whichever member and through a client, and the restored cluster has them, with the same names. Another member can join it, a
// further group can be created and each can be deleted.
func TestBackup_AllGroups(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	a, b := create(t, g.Nodes[0], "a"), create(t, g.Nodes[1], "b")
	fences := []conclave.Fence{use(t, g.Nodes[2].Group, "of the default"), use(t, a, "of a"), use(t, b, "of b")}
	c := gt.Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	backups := [][]byte{backupOf(t, c), backupOf(t, g.Nodes[0]), backupOf(t, g.Nodes[2])}
	fences = append(fences, gt.MustLock(t, b.FencedLock("after the backup")))
	g.KillAll()
	for _, backup := range backups {
		n := restored(t, backup)
		if names := further(t, n); !slices.Equal(names, []string{"a", "b"}) {
			t.Fatalf("groups %v", names)
		}
		wantRestored(t, n.Group, "of the default", fences...)
		wantRestored(t, n.WithGroup("a"), "of a", fences...)
		wantRestored(t, n.WithGroup("b"), "of b", fences...)
		if f := gt.MustLock(t, create(t, n, "c").FencedLock("x")); f <= slices.Max(fences) {
			t.Errorf("fence %v after %v", f, fences)
		}
		other, err := conclave.Open(gt.Bounded(t), &conclave.Config{
			Dir: filepath.Join(t.TempDir(), "other"), Join: []string{n.Addr()}, HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond,
		})
		gt.Must(t, err)
		if e := gt.MustGet(t, other.WithGroup("b").KV(), "k"); string(e.Value) != "of b" {
			t.Errorf("%q", e.Value)
		}
		gt.Must(t, other.DeleteGroup(gt.Bounded(t), "b", conclave.Force()))
		if f := gt.MustLock(t, create(t, other, "b").FencedLock("x")); f <= slices.Max(fences) {
			t.Errorf("fence %v after %v", f, fences)
		}
		gt.Kill(other)
		gt.Kill(n)
	}
}

// A restored cluster, restored again, has fences of a third epoch in all groups.
func TestBackup_AllGroupsTwice(t *testing.T) {
	t.Parallel()
	first := alone(t, filepath.Join(t.TempDir(), "first"))
	old := use(t, create(t, first, "a"), "1")
	second := restored(t, backupOf(t, first))
	gt.MustPut(t, second.WithGroup("a").KV(), "k", "2")
	later := gt.MustLock(t, second.WithGroup("a").FencedLock("x"))
	wantRestored(t, restored(t, backupOf(t, second)).WithGroup("a"), "2", old, later)
	info, err := conclave.Verify(restoredDir(t, backupOf(t, second)))
	if err != nil || info.Epoch() != 2 || len(info.Groups) != 1 || info.Groups[0].Name != "a" || info.Groups[0].Keys != 1 || info.Groups[0].Fence <= later {
		t.Errorf("%+v, %v", info, err)
	}
}

// Two clusters that are restored from one backup repeat no fence, also in groups that are created later.
func TestBackup_CreatedAfterEachRestore(t *testing.T) {
	t.Parallel()
	old := alone(t, filepath.Join(t.TempDir(), "old"))
	backup := backupOf(t, old)
	first := restored(t, backup)
	l := create(t, first, "a").FencedLock("x")
	var last conclave.Fence
	for range 3 {
		last = gt.MustLock(t, l)
		gt.MustUnlock(t, l)
	}
	gt.Kill(first)
	if f := gt.MustLock(t, create(t, restored(t, backup), "a").FencedLock("x")); f <= last {
		t.Errorf("fence %v after %v", f, last)
	}
}

func restoredDir(t *testing.T, backup []byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	gt.Must(t, conclave.Restore(t.Context(), dir, bytes.NewReader(backup)))
	return dir
}

// The backup of a further group has that alone, and it is the default one of the cluster that is restored.
func TestBackup_OneGroup(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := gt.Bounded(t)
	a := create(t, g.Nodes[0], "a")
	fences := []conclave.Fence{use(t, g.Nodes[0].Group, "of the default"), use(t, a, "of a"), use(t, create(t, g.Nodes[0], "b"), "of b")}
	backup := backupOf(t, g.Nodes[1].WithGroup("a"))
	gt.WantError(t, g.Nodes[1].WithGroup("none").Backup(ctx, failing{t}), conclave.ErrGroupNotFound)
	gt.Must(t, g.Nodes[2].DeleteGroup(ctx, "a", conclave.Force()))
	gt.WantError(t, a.Backup(ctx, failing{t}), conclave.ErrGroupNotFound)
	g.KillAll()
	n := restored(t, backup)
	if names := further(t, n); len(names) != 0 || n.Status().Role != conclave.Voter {
		t.Errorf("groups %v, %+v", names, n.Status())
	}
	wantRestored(t, n.Group, "of a", fences...)
	gt.MustLock(t, create(t, n, "a").FencedLock("x"))
	wantRestored(t, restored(t, backupOf(t, n)).Group, "of a", fences...)
}

// A client has its member write the backup of a further group, which needs no quorum if the client only reads.
func TestBackup_OneGroupByClient(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := gt.Bounded(t)
	fence := use(t, create(t, g.Nodes[0], "a"), "of a")
	c := gt.Dial(t, &conclave.ClientConfig{}, g.Nodes[2])
	gt.WantError(t, c.WithGroup("none").Backup(ctx, failing{t}), conclave.ErrGroupNotFound)
	wantRestored(t, restored(t, backupOf(t, c.WithGroup("a"))).Group, "of a", fence)
	reading := gt.Dial(t, &conclave.ClientConfig{ReadOnly: true}, g.Nodes[2])
	g.Kill(0)
	g.Kill(1)
	var unconfirmed bytes.Buffer
	gt.WantError(t, reading.WithGroup("a").Backup(ctx, &unconfirmed), conclave.ErrUnavailable)
	wantRestored(t, restored(t, unconfirmed.Bytes()).Group, "of a", fence)
}

// failing is a writer to which nothing may be written.
type failing struct{ t *testing.T }

func (f failing) Write(b []byte) (int, error) {
	f.t.Errorf("%d bytes were written", len(b))
	return len(b), nil
}

// A group that is deleted while a backup is written is in it: its state is chosen before. One that is deleted earlier is not, and its name
// can be given to another one.
func TestBackup_DeletedMeanwhile(t *testing.T) {
	t.Parallel()
	n := alone(t, filepath.Join(t.TempDir(), "old"))
	ctx := gt.Bounded(t)
	use(t, create(t, n, "early"), "early")
	last := use(t, create(t, n, "late"), "late")
	use(t, create(t, n, "kept"), "kept")
	gt.Must(t, n.DeleteGroup(ctx, "early", conclave.Force()))
	w := &firstWrite{do: func() { gt.Must(t, n.DeleteGroup(ctx, "late", conclave.Force())) }}
	gt.Must(t, n.Backup(ctx, w))
	r := restored(t, w.Bytes())
	if names := further(t, r); !slices.Equal(names, []string{"kept", "late"}) {
		t.Errorf("groups %v", names)
	}
	wantRestored(t, r.WithGroup("late"), "late", last)
	wantRestored(t, r.WithGroup("kept"), "kept", last)
	if f := gt.MustLock(t, create(t, r, "early").FencedLock("x")); f <= last {
		t.Errorf("fence %v after %v", f, last)
	}
	if r = restored(t, backupOf(t, n)); !slices.Equal(further(t, r), []string{"kept"}) {
		t.Errorf("groups %v", further(t, r))
	}
	gt.Must(t, n.DeleteGroup(ctx, "kept", conclave.Force()))
	if r = restored(t, backupOf(t, n)); len(further(t, r)) != 0 {
		t.Errorf("groups %v", further(t, r))
	}
}

// firstWrite calls a function in its first write.
type firstWrite struct {
	bytes.Buffer
	do func()
}

func (w *firstWrite) Write(b []byte) (int, error) {
	if w.do != nil {
		w.do()
		w.do = nil
	}
	return w.Buffer.Write(b)
}

// A member without a quorum backs up what it has of all groups, and of one, and reports that.
func TestBackup_GroupsWithoutQuorum(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	a := create(t, g.Nodes[0], "a")
	old := use(t, a, "v")
	for _, i := range g.All() { // each has the key
		gt.MustGet(t, g.Nodes[i].WithGroup("a").KV(), "k")
	}
	g.Kill(0, 1)
	var all, one bytes.Buffer
	gt.WantError(t, g.Nodes[2].Backup(gt.Bounded(t), &all), conclave.ErrUnavailable)
	gt.WantError(t, g.Nodes[2].WithGroup("a").Backup(gt.Bounded(t), &one), conclave.ErrUnavailable)
	err := g.Nodes[2].WithGroup("none").Backup(gt.Within(t, 500*time.Millisecond), failing{t})
	gt.WantError(t, err, conclave.ErrIncomplete)
	if errors.Is(err, conclave.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is that of a complete backup, or has no cause", err)
	}
	wantRestored(t, restored(t, all.Bytes()).WithGroup("a"), "v", old)
	wantRestored(t, restored(t, one.Bytes()).Group, "v", old)
}

// What is damaged, truncated or put together of several backups is refused, and the directory is not begun.
func TestRestore_GroupsRefused(t *testing.T) {
	t.Parallel()
	n := alone(t, filepath.Join(t.TempDir(), "old"))
	create(t, n, "a")
	create(t, n, "b")
	gt.MustPut(t, n.KV(), "k", "v")
	whole, a, b := backupOf(t, n), backupOf(t, n.WithGroup("a")), backupOf(t, n.WithGroup("b"))
	dir := filepath.Join(t.TempDir(), "a", "b")
	refused := func(what string, bad []byte) {
		t.Helper()
		if err := conclave.Restore(t.Context(), dir, bytes.NewReader(bad)); !errors.Is(err, conclave.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Fatalf("%s: the directory was begun: %v", what, err)
		}
	}
	for at := len(whole) - 1; at > 0; at -= 1 + len(whole)/150 {
		refused("truncated", whole[:at])
		bad := bytes.Clone(whole)
		bad[at] ^= 1
		refused("damaged", bad)
	}
	for at := range whole { // between two documents, and before the trailer
		if bytes.HasPrefix(whole[at:], []byte("conclave backup\n")) {
			refused("a document is missing", whole[:at])
		}
	}
	refused("two groups alone", slices.Concat(a, b))
	refused("twice", slices.Concat(whole, whole))
	refused("a group behind all", slices.Concat(whole, a))
	gt.Must(t, conclave.Restore(t.Context(), dir, bytes.NewReader(whole)))
}
