package virtualtime

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A removed member is not needed any more, not even to learn of its removal: all
// that remain lose power as soon as Leave has returned.
func TestLeave_PowerLossAfterCommit(t *testing.T) {
	for _, members := range []int{2, 3, 4} {
		for _, role := range []string{"leader", "follower"} {
			t.Run(fmt.Sprintf("%s of %d", role, members), func(t *testing.T) {
				t.Parallel()
				inMembershipBubble(t, members, func(g *membership) {
					x := g.Leader()
					if role == "follower" {
						x = (x + 1) % members
					}
					g.leave(x)
					g.restartAfterPowerLoss()
					g.wantLock()
				})
			})
		}
	}
}

// The leaving member has its removal on its disk, and the disks of the others are
// slow. Leave must not return yet: after a power loss the others would still need
// its vote.
func TestLeave_PowerLossWithSlowDisks(t *testing.T) {
	for _, members := range []int{2, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			t.Parallel()
			disks, slow := slowDisks(members)
			inMembershipBubble(t, members, func(g *membership) {
				x := (g.Leader() + 1) % members
				for _, i := range g.Others(x) {
					disks[i].slow.Store(true)
				}
				g.leave(x)
				g.restartAfterPowerLoss()
				g.wantLock()
			}, slow)
		})
	}
}

// Of four voters one leaves, and the others lose power. All but the first that knew
// of the removal come back, and are a quorum.
func TestLeave_PowerLossNotAllComeBack(t *testing.T) {
	t.Parallel()
	disks, slow := slowDisks(4)
	inMembershipBubble(t, 4, func(g *membership) {
		leader := g.Leader()
		x := (leader + 1) % 4
		rest := []int{(leader + 2) % 4, (leader + 3) % 4}
		for _, i := range rest {
			disks[i].slow.Store(true)
		}
		g.leave(x)
		g.Crash(g.Running()...)
		g.Restart(rest...)
		g.wantLock()
	}, slow)
}

// Two voters and a standby: the leaving voter must not rely on the standby's
// knowledge of the removal while the other voter may lose it.
func TestLeave_PowerLossWithStandby(t *testing.T) {
	t.Parallel()
	disks, slow := slowDisks(4)
	inMembershipBubble(t, 4, func(g *membership) {
		leader := g.Leader()
		var others []int
		for _, i := range g.voters() {
			if i != leader {
				others = append(others, i)
			}
		}
		g.leave(others[0])
		disks[leader].slow.Store(true)
		g.leave(others[1])
		g.restartAfterPowerLoss()
		g.wantLock()
	}, voters(3), slow)
}

// All lose power when the leaving member knows of its removal and has not marked its
// directory: the others need its vote to learn of the removal.
func TestLeave_PowerLossBeforeMemberNotesRemoval(t *testing.T) {
	t.Parallel()
	inMembershipBubble(t, 2, func(g *membership) {
		x := 1 - g.Leader()
		g.RequestRemoval(x)
		for len(g.Nodes[x].Status().Members) > 1 && g.Nodes[x].Err() == nil {
			pass(time.Millisecond) // Status is a snapshot; nothing signals a change
		}
		g.Crash(x)
		g.Crash(1 - x)
		g.Net.Rejoin(x)
		refused := make(chan error, 1)
		go func() {
			_, err := g.Open(x, time.Minute)
			refused <- err
		}()
		g.Start(1 - x)
		g.wantLock()
		grouptest.WantError(g.T, <-refused, conclave.ErrRemoved)
	})
}

// A removed member whose vote is still needed does not learn of its removal.
func TestLeave_KilledWhileStillNeeded(t *testing.T) {
	t.Parallel()
	inMembershipBubble(t, 3, func(g *membership) {
		leader := g.Leader()
		x, other := (leader+1)%3, (leader+2)%3
		g.Net.Isolate(other)
		pass(2 * election) // until the leader counts it as unreachable
		g.RequestRemoval(x)
		g.Kill(x)
		_, err := g.Open(x, 20*time.Second)
		grouptest.WantError(t, err, conclave.ErrUnavailable)
		grouptest.WantError(t, err, context.DeadlineExceeded)
		g.Net.Rejoin(other)
		g.wantRemoved(x)
		g.wantLock()
	})
}

// slowDisk is slow, when slow is set, to sync the database's log: longer than a
// removed member takes to close, and less than what makes a leader step down.
type slowDisk struct {
	vfs.FS
	memory *vfs.MemFS
	slow   atomic.Bool
}

// slowDisks gives each member a slowDisk.
func slowDisks(members int) ([]*slowDisk, grouptest.Option) {
	disks := make([]*slowDisk, members)
	return disks, grouptest.Edit(func(i int, _ *conclave.Config, s *cluster.Seams) {
		d := &slowDisk{memory: s.FS.(*vfs.MemFS)}
		d.FS = errorfs.Wrap(d.memory, errorfs.InjectorFunc(func(op errorfs.Op) error {
			synced := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
			if synced && strings.HasSuffix(op.Path, ".log") && d.slow.Load() {
				pass(election * 9 / 10)
			}
			return nil
		}))
		disks[i], s.FS = d, d
	})
}

// CrashClone is for Group.Crash.
func (d *slowDisk) CrashClone(c vfs.CrashCloneCfg) *vfs.MemFS { return d.memory.CrashClone(c) }
