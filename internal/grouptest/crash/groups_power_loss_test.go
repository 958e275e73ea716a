package crash

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/memdisk"
)

// change is a change of further groups, or of their members, in which a victim takes part.
type change struct {
	members, newcomers int
	victim, by         int // by changes something; it is another member
	prepare            func(c *tenants)
	run                func(c *tenants, lost context.Context) // lost is done when the victim has lost power
	joins              bool                                   // the change is that the victim starts
	step               int                                    // of so many operations of the victim's disk, one is tested without -long
}

// changes returns the changes, by name. Each group has three voters.
func changes() map[string]change {
	return map[string]change{
		"create and delete":            created(0),
		"create and delete, as leader": created(1),
		"join":                         joined(),
		"replace a voter":              replaced(),
	}
}

// created is groups that are created, deleted and created again. The victim is member 1.
func created(leader int) change {
	return change{members: 3, victim: 1, by: 2, step: 7, prepare: func(c *tenants) {
		c.create("a")
		c.create("c")
		for _, name := range []string{"", "a", "c"} {
			c.leadIn(name, leader)
		}
	}, run: func(c *tenants, _ context.Context) {
		c.create("b")
		c.delete("c")
		c.put("a")
		c.delete("b")
		c.create("b")
	}}
}

// joined is a member that joins, and receives a snapshot of each group.
func joined() change {
	return change{members: 4, newcomers: 1, victim: 3, by: 0, step: 13, joins: true, prepare: func(c *tenants) {
		for _, name := range []string{"a", "gone", "b"} {
			c.create(name)
		}
		c.delete("gone")
		for range 30 { // more than the logs keep
			c.put("a")
			c.put("b")
			grouptest.MustPut(c.T, c.Nodes[0].KV(), "k", "v")
		}
	}, run: func(*tenants, context.Context) {}}
}

// replaced is a voter that dies, and that the victim, a standby, replaces in each group.
func replaced() change {
	return change{members: 4, newcomers: 1, victim: 3, by: 0, step: 13, prepare: func(c *tenants) {
		c.create("a")
		c.create("b")
		c.Start(c.victim)
		grouptest.Must(c.T, c.Nodes[c.by].SetGroupConfig(c.within(), conclave.GroupConfig{Voters: 3, ReplaceAfter: 10 * time.Second}))
		c.await(c.within(), 0)
	}, run: func(c *tenants, lost context.Context) {
		standby := c.ID(c.victim)
		c.Kill(1)
		c.await(lost, standby)
		c.put("a")
		c.put("b")
	}}
}

// between is the distance of the tested operations.
func (of change) between() int {
	switch {
	case *long:
		return 1
	case testing.Short():
		return 3 * of.step
	}
	return of.step
}

// inBubble runs a test with a group whose victim has a disk with faults.
func (of change) inBubble(t *testing.T, faults errorfs.Injector, test func(c *tenants, disk *memdisk.Disk)) {
	var disk *memdisk.Disk
	grouptest.InBubble(t, of.members, func(g *grouptest.Group) {
		c := newTenants(g, of.victim, of.by)
		of.prepare(c)
		test(c, disk)
	}, grouptest.Newcomers(of.newcomers), grouptest.ShortLog, grouptest.Edit(func(i int, _ *conclave.Config, s *cluster.Seams) {
		if i == of.victim {
			disk = memdisk.On(s.FS.(*vfs.MemFS))
			s.FS = errorfs.Wrap(disk, faults)
		}
	}))
}

// powerLost runs the change; the victim loses power before the nth operation on its disk. It starts on what is left, and
// all groups are checked. It reports whether there were so many operations.
func (of change) powerLost(t *testing.T, n, kept int) (at string) {
	loss := &powerLoss{member: of.victim, kept: kept, rng: rand.New(rand.NewPCG(uint64(n), 0))}
	of.inBubble(t, loss, func(c *tenants, disk *memdisk.Disk) {
		ctx, lost := context.WithCancel(c.within())
		defer lost()
		loss.begin(c.Group, disk, n, lost)
		if of.joins {
			node, err := c.OpenWith(ctx, c.victim)
			if err != nil && ctx.Err() == nil {
				c.T.Fatal(err)
			}
			if c.Nodes[c.victim] = node; ctx.Err() == nil {
				c.await(ctx, 0)
			}
		}
		of.run(c, ctx)
		var image *vfs.MemFS
		if image, at = loss.result(); image != nil {
			c.T.Logf("power loss %d, before %s, %d %% kept", n, at, kept)
			c.Kill(c.victim)
			c.Net.Discard(c.victim)
			c.Net.Rejoin(c.victim)
			c.Seams[c.victim].FS = image
			c.Start(c.victim)
		}
		c.await(c.within(), 0)
		c.wantWhole()
	})
	return at
}

// A member loses power before each operation on its disk while groups are created, deleted and created again; while it joins and receives
// a snapshot of each; and while it replaces a dead voter. It starts again, no member refuses it, each group has what was
// acknowledged and is usable on each member, and of the deleted ones nothing is left.
func TestPowerLoss_Groups(t *testing.T) {
	for name, of := range changes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, step := 1, of.between()
			for of.powerLost(t, n, []int{0, 100, 50}[n/step%3]) != "" && !t.Failed() {
				n += step
			}
			t.Logf("%d operations", n)
		})
	}
}
