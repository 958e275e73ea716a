package grouptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// faultyDisk fails every operation of one kind once broken is set.
type faultyDisk struct {
	kind   errorfs.OpKind
	reason error
	broken atomic.Bool
}

func (d *faultyDisk) MaybeError(op errorfs.Op) error {
	if d.broken.Load() && op.Kind == d.kind {
		return &errorPath{op.Path, d.reason}
	}
	return nil
}

func (d *faultyDisk) String() string { return fmt.Sprint(d.kind) }

type errorPath struct {
	path string
	err  error
}

func (e *errorPath) Error() string { return e.path + ": " + e.err.Error() }
func (e *errorPath) Unwrap() error { return e.err }

// A disk failure stops the node and nothing else: the process and the other members
// continue, nothing is acknowledged afterwards, and Err names operation and file.
func TestDiskFailure_StopsNodeOnly(t *testing.T) {
	t.Parallel()
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileWriteAt} {
		for _, reason := range []error{syscall.EIO, syscall.ENOSPC} {
			t.Run(fmt.Sprintf("%v/%v", kind, reason), func(t *testing.T) {
				disk := &faultyDisk{kind: kind, reason: reason}
				InBubble(t, 3, func(g *Group) { failDisk(g, disk) }, Edit(func(i int, c *conclave.Config, h *cluster.Seams) {
					h.FS = vfs.NewMem()
					if i == 0 {
						h.FS = errorfs.Wrap(h.FS, disk)
					}
				}))
			})
		}
	}
}

// failDisk has the disk of the first member fail, which holds a lock.
func failDisk(g *Group, disk *faultyDisk) {
	victim := g.Nodes[0]
	l := victim.FencedLock("x")
	f := MustLock(g.T, l)
	lost := l.Lost()
	disk.broken.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() { // load on the disk
		other := victim.FencedLock("y")
		for {
			if _, err := other.Lock(g.T.Context()); err != nil {
				return
			}
			_ = other.Unlock(g.T.Context())
		}
	})
	select {
	case <-victim.Done():
	case <-time.After(patience):
		g.T.Fatal("the node has not stopped")
	}
	wg.Wait()
	stopped := victim.Err()
	WantError(g.T, stopped, disk.reason)
	<-lost
	_, err := l.Fence()
	WantError(g.T, err, conclave.ErrLockOwnershipLost)
	_, err = victim.FencedLock("z").TryLock(g.T.Context())
	WantError(g.T, err, conclave.ErrClosed)
	if !errors.Is(err, disk.reason) {
		g.T.Errorf("%v does not wrap why the node has stopped", err)
	}
	for _, part := range []string{"disk", "data/"} {
		if !strings.Contains(stopped.Error(), part) {
			g.T.Errorf("%v does not name %q", stopped, part)
		}
	}
	if again := MustLock(g.T, g.Nodes[1].FencedLock("x")); again <= f {
		g.T.Errorf("fence %v after %v", again, f)
	}
}

// A leader whose disk hangs loses leadership.
func TestDiskHang_LeaderStepsDown(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, PoweredDisks)
	hung := g.Leader()
	release := g.Seams[hung].FS.(*PoweredDisk).Hang()
	defer release()
	other := g.Nodes[(hung+1)%3].FencedLock("x")
	f := MustLock(t, other)
	if leader := g.Nodes[(hung+1)%3].Status().Leader; leader == g.Nodes[hung].Status().ID {
		t.Fatal("the leader with the hanging disk still leads")
	}
	MustUnlock(t, other)
	release()
	if again := MustLock(t, g.Nodes[hung].FencedLock("x")); again <= f {
		t.Fatalf("fence %v after %v", again, f)
	}
}

// A disk fails under calls that need the node's session opened: each call returns, Done
// is closed, and Close returns.
func TestDiskFailure_DuringSessionOpening(t *testing.T) {
	t.Parallel()
	for range 20 {
		disk := &faultyDisk{kind: errorfs.OpFileSyncData, reason: syscall.EIO}
		g := Start(t, 1, Edit(func(_ int, c *conclave.Config, h *cluster.Seams) {
			c.Dir = "data"
			h.FS = errorfs.Wrap(vfs.NewMem(), disk)
		}))
		n := g.Nodes[0]
		disk.broken.Store(true)
		var callers sync.WaitGroup
		for range 32 {
			l := n.FencedLock("x")
			callers.Go(func() {
				for n.Err() == nil {
					_, _ = l.Lock(context.Background())
				}
			})
		}
		<-n.Done()
		callers.Wait()
		n.Close(context.Background())
	}
}

// Close is called while the node stops because of its disk. The race detector sees
// whether both ends agree on which of them it was.
func TestDiskFailure_DuringClose(t *testing.T) {
	t.Parallel()
	for range 5 {
		disk := &faultyDisk{kind: errorfs.OpFileSyncData, reason: syscall.EIO}
		g := Start(t, 1, Edit(func(_ int, c *conclave.Config, h *cluster.Seams) {
			c.Dir = "data"
			h.FS = errorfs.Wrap(vfs.NewMem(), disk)
		}))
		n := g.Nodes[0]
		MustLock(t, n.FencedLock("x"))
		disk.broken.Store(true)
		_, _ = n.FencedLock("y").Lock(t.Context()) // fails when the disk does
		n.Close(t.Context())
		WantError(t, n.Err(), syscall.EIO)
	}
}
