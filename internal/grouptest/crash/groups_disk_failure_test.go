package crash

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/memdisk"
)

// fillingDisk is a disk on which, once begun, every operation from the nth on fails that changes it.
type fillingDisk struct {
	left   atomic.Pointer[atomic.Int64]
	failed context.CancelFunc // called at the first failure
}

func (f *fillingDisk) String() string { return "filling disk" }

func (f *fillingDisk) MaybeError(op errorfs.Op) error {
	left := f.left.Load()
	if left == nil || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose || left.Add(-1) > 0 {
		return nil
	}
	f.failed()
	return syscall.ENOSPC
}

func (f *fillingDisk) begin(n int, failed context.CancelFunc) {
	f.failed = failed
	left := new(atomic.Int64)
	left.Store(int64(n))
	f.left.Store(left)
}

// callAll has a goroutine for each group call a node until that has stopped.
func callAll(c *tenants, n *conclave.Node) (calls *sync.WaitGroup) {
	calls = new(sync.WaitGroup)
	for _, name := range []string{"conclave", "a", "b"} { // the first is the default one
		calls.Go(func() {
			for {
				_, err := n.WithGroup(name).KV().Put(c.T.Context(), "call", nil)
				if errors.Is(err, conclave.ErrClosed) {
					return
				}
				grouptest.Pass(grouptest.BubbleElection)
			}
		})
	}
	return calls
}

// diskFailed runs the change; the nth operation on the victim's disk fails, and all later ones. It reports whether there were so many.
func (of change) diskFailed(t *testing.T, n int) (failed bool) {
	disk := new(fillingDisk)
	of.inBubble(t, disk, func(c *tenants, memory *memdisk.Disk) {
		ctx, fail := context.WithCancel(c.within())
		defer fail()
		victim, calls := c.Nodes[c.victim], new(sync.WaitGroup)
		if of.joins {
			disk.begin(n, fail)
			var err error
			if victim, err = c.OpenWith(c.within(), c.victim); err != nil {
				grouptest.WantError(c.T, err, syscall.ENOSPC)
				failed = true
				return
			}
			c.Nodes[c.victim] = victim
			calls = callAll(c, victim)
			c.await(ctx, 0)
		} else {
			calls = callAll(c, victim)
			disk.begin(n, fail)
		}
		of.run(c, ctx)
		if failed = ctx.Err() != nil; !failed {
			c.Close(c.victim)
			calls.Wait()
			return
		}
		<-victim.Done()
		grouptest.WantError(c.T, victim.Err(), syscall.ENOSPC)
		calls.Wait()
		c.Kill(c.victim)
		c.Seams[c.victim].FS = memory.CrashClone(vfs.CrashCloneCfg{})
		c.Start(c.victim)
		c.await(c.within(), 0)
		c.wantWhole()
	})
	return failed
}

// The disk of a member fails at each operation while groups are created, deleted and created again; while it joins; and while it replaces a
// dead voter. It stops with that cause, its calls to all groups end, and the other members go on.
func TestDiskFailure_Groups(t *testing.T) {
	for name, of := range changes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 1
			for of.diskFailed(t, n) && !t.Failed() {
				n += 3 * of.between()
			}
			t.Logf("%d operations", n)
		})
	}
}
