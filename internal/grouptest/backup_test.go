package grouptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// backup returns a backup by a member.
func backup(t testing.TB, n *conclave.Node) []byte {
	t.Helper()
	var b bytes.Buffer
	Must(t, n.Backup(Bounded(t), &b))
	return b.Bytes()
}

// restore opens the new group of a backup.
func restore(t testing.TB, backup []byte) *conclave.Node {
	t.Helper()
	c := SoloConfig(t)
	Must(t, conclave.Restore(t.Context(), c.Dir, bytes.NewReader(backup)))
	return openSolo(t, c)
}

func openSolo(t testing.TB, c conclave.Config) *conclave.Node {
	t.Helper()
	n, err := conclave.Open(Bounded(t), &c)
	Must(t, err)
	t.Cleanup(func() { Kill(n) })
	return n
}

// A standby, like every member, has in its backup everything that was acknowledged before.
func TestBackup_AnyMember(t *testing.T) {
	t.Parallel()
	g := Start(t, 2, Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) { c.Voters = 1 }))
	leader := g.Leader()
	if role := g.Nodes[1-leader].Status().Role; role != conclave.Standby {
		t.Fatalf("the other member is a %v", role)
	}
	for i := range 20 {
		MustPut(t, g.Nodes[leader].KV(), "k", fmt.Sprint(i))
		n := restore(t, backup(t, g.Nodes[i%2]))
		if e := MustGet(t, n.KV(), "k"); string(e.Value) != fmt.Sprint(i) {
			t.Fatalf("the backup of member %d has %q; %d was acknowledged before", i%2, e.Value, i)
		}
		Kill(n)
	}
}

// A backup during heavy writes is the state at one index: two keys that are always
// written together are equal. Calls go on while the writer of a backup blocks.
func TestBackup_OneIndexUnderLoad(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	n := g.Nodes[0]
	for i := range 8 { // several pages
		MustPut(t, n.KV(), fmt.Sprintf("m/%d", i), strings.Repeat("v", 400<<10))
	}
	_, err := n.KV().Txn(Bounded(t), conclave.OpPut("a", nil), conclave.OpPut("z", nil))
	Must(t, err)
	writing, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; writing.Err() == nil; i++ {
				value := fmt.Appendf(nil, "%d/%d", w, i)
				_, err := g.Nodes[w%3].KV().Txn(writing, conclave.OpPut("a", value), conclave.OpPut("z", value))
				if err != nil && writing.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer writers.Wait()
	defer stop()
	var first, last []byte
	for round := range 6 {
		w := &slowWriter{between: func() {
			MustPut(t, n.KV(), "between", fmt.Sprint(round)) // while the writer does not return
		}}
		Must(t, g.Nodes[round%3].Backup(Bounded(t), w))
		if w.writes < 4 {
			t.Fatalf("%d writes: the state was read at once", w.writes)
		}
		last = w.Bytes()
		if round == 0 {
			first = last
		}
	}
	for _, b := range [][]byte{first, last} {
		r := restore(t, b)
		a, z := MustGet(t, r.KV(), "a"), MustGet(t, r.KV(), "z")
		if !bytes.Equal(a.Value, z.Value) || z.ModifyIndex != a.ModifyIndex+1 {
			t.Errorf("%q under index %d, but %q under index %d", a.Value, a.ModifyIndex, z.Value, z.ModifyIndex)
		}
	}
}

// slowWriter calls a function in each write.
type slowWriter struct {
	bytes.Buffer
	writes  int
	between func()
}

func (w *slowWriter) Write(p []byte) (int, error) {
	w.writes++
	w.between()
	return w.Buffer.Write(p)
}

// A member without a quorum backs up what it has, and reports that.
func TestBackup_WithoutQuorum(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	MustPut(t, g.Nodes[0].KV(), "k", "v")
	g.AwaitApplied(2)
	g.Kill(0, 1)
	var b bytes.Buffer
	err := g.Nodes[2].Backup(Bounded(t), &b)
	WantError(t, err, conclave.ErrUnavailable)
	if !strings.Contains(err.Error(), "the backup is complete") {
		t.Error(err)
	}
	if e := MustGet(t, restore(t, b.Bytes()).KV(), "k"); string(e.Value) != "v" {
		t.Errorf("%+v", e)
	}
}

// A context that ends, a writer that fails, and the end of the node end a backup. What
// was written by then is refused. The node stops also while the writer blocks.
func TestBackup_Interrupted(t *testing.T) {
	t.Parallel()
	n := openSolo(t, SoloConfig(t))
	for i := range 8 {
		MustPut(t, n.KV(), fmt.Sprintf("m/%d", i), strings.Repeat("v", 400<<10))
	}
	failure := errors.New("no space left")
	ctx, cancel := context.WithCancel(t.Context())
	for _, test := range []struct {
		ctx  context.Context
		end  func() error // in the third write
		want error
	}{
		{t.Context(), func() error { return failure }, failure},
		{ctx, func() error { cancel(); return nil }, context.Canceled},
		{t.Context(), func() error { Kill(n); return nil }, conclave.ErrClosed}, // returns only when nothing is left open
		{t.Context(), func() error { return nil }, conclave.ErrClosed},
		{Expired(), func() error { return nil }, conclave.ErrClosed},
	} {
		w := &endingWriter{end: test.end}
		WantError(t, n.Backup(test.ctx, w), test.want)
		err := conclave.Restore(t.Context(), filepath.Join(t.TempDir(), "none"), &w.Buffer)
		WantError(t, err, conclave.ErrCorrupt)
	}
	WantError(t, openSolo(t, SoloConfig(t)).Backup(Expired(), io.Discard), context.Canceled)
}

// endingWriter calls a function in its third write.
type endingWriter struct {
	bytes.Buffer
	writes int
	end    func() error
}

func (w *endingWriter) Write(p []byte) (int, error) {
	if w.writes++; w.writes == 3 {
		if err := w.end(); err != nil {
			return 0, err
		}
	}
	return w.Buffer.Write(p)
}

// A member of the old group is refused by the restored one, with a reason that names the
// clusters, and the new group is not disturbed.
func TestRestore_OldMembersRefused(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	MustPut(t, g.Nodes[0].KV(), "k", "v")
	b := backup(t, g.Nodes[0])
	g.KillAll()
	c := SoloConfig(t)
	Must(t, conclave.Restore(t.Context(), c.Dir, bytes.NewReader(b)))
	c.Bind = g.Configs[0].Bind // where the others look for an old member
	n := openSolo(t, c)
	f := MustLock(t, n.FencedLock("x"))

	old := g.Configs[1]
	old.Listener, old.Join = nil, []string{c.Bind}
	stale, err := conclave.Open(Within(t, 20*time.Second), &old) // some rounds of gossip
	if err == nil {
		Kill(stale)
		t.Fatal("a member of the old group has joined the new one")
	}
	WantError(t, err, conclave.ErrUnavailable)
	before, infoErr := conclave.Verify(old.Dir)
	Must(t, infoErr)
	after, infoErr := conclave.Verify(c.Dir)
	if infoErr == nil {
		t.Errorf("a directory in use was verified: %v", after)
	}
	for _, part := range []string{"belongs to cluster", before.Cluster, "restored or recovered"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
	if members := n.Status().Members; len(members) != 1 {
		t.Errorf("members %+v", members)
	}
	if next := MustLock(t, n.FencedLock("y")); next <= f {
		t.Errorf("fence %v after %v", next, f)
	}
}
