package crash

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// tenants is a group with further groups, of which one member's disk loses power or fails during a change.
type tenants struct {
	*grouptest.Group
	victim  int
	by      int                       // the member that creates and deletes groups, and writes
	written map[string]string         // by group: the acknowledged value of a key; the groups that exist
	fences  map[string]conclave.Fence // by group, also deleted: the largest that was granted
	floor   conclave.Fence            // the largest of a deleted group
}

func newTenants(g *grouptest.Group, victim, by int) *tenants {
	return &tenants{Group: g, victim: victim, by: by, written: make(map[string]string), fences: make(map[string]conclave.Fence)}
}

func (c *tenants) within() context.Context { return grouptest.Bounded(c.T) }

// create creates a group. Its fences are larger than those of the deleted groups.
func (c *tenants) create(name string) {
	c.T.Helper()
	_, err := c.Nodes[c.by].CreateGroup(c.within(), name, conclave.GroupConfig{})
	grouptest.Must(c.T, err)
	c.fences[name] = max(c.fences[name], c.floor)
	c.put(name)
	c.lock(c.by, name)
}

func (c *tenants) delete(name string) {
	c.T.Helper()
	grouptest.Must(c.T, c.Nodes[c.by].DeleteGroup(c.within(), name, conclave.Force()))
	delete(c.written, name)
	c.floor = max(c.floor, c.fences[name])
}

// put writes a key.
func (c *tenants) put(name string) {
	c.T.Helper()
	value := fmt.Sprint(name, time.Now())
	_, err := c.Nodes[c.by].WithGroup(name).KV().Put(c.within(), "k", []byte(value))
	grouptest.Must(c.T, err)
	c.written[name] = value
}

// lock takes a lock, whose fence must be larger than all before, and releases it.
func (c *tenants) lock(by int, name string) {
	c.T.Helper()
	l := c.Nodes[by].WithGroup(name).FencedLock("l")
	f, err := l.Lock(c.within())
	grouptest.Must(c.T, err)
	if f <= c.fences[name] {
		c.T.Errorf("group %s: fence %v after %v", name, f, c.fences[name])
	}
	c.fences[name] = f
	grouptest.Must(c.T, l.Unlock(c.within()))
}

// leadIn has a member lead a group; "": the default one.
func (c *tenants) leadIn(name string, to int) {
	c.T.Helper()
	g := c.Nodes[to].Group
	if name != "" {
		g = c.Nodes[to].WithGroup(name)
	}
	for {
		err := g.TransferLeadership(c.within(), c.ID(to))
		if err == nil {
			return
		}
		grouptest.WantError(c.T, err, conclave.ErrInvalid)
	}
}

// await blocks until each running member has each group with its leader and three voters, of which want is one; 0: any. It returns
// early when ctx is done.
func (c *tenants) await(ctx context.Context, want conclave.MemberID) {
	c.T.Helper()
	for patience := c.within(); ctx.Err() == nil && !c.follow(ctx, want); grouptest.Pass(50 * time.Millisecond) {
		if patience.Err() != nil {
			c.T.Fatal("a member has not each group with a leader and three voters")
		}
	}
}

func (c *tenants) follow(ctx context.Context, want conclave.MemberID) bool {
	for _, i := range c.Running() {
		list, err := grouptest.Collect(c.Nodes[i].Groups(ctx))
		if err != nil && ctx.Err() == nil {
			c.T.Fatal(err)
		}
		for _, of := range list {
			if len(of.Voters) != 3 || !slices.Contains(of.Voters, of.Leader) || want != 0 && !slices.Contains(of.Voters, want) {
				return false
			}
		}
	}
	return true
}

// wantWhole checks each group on each running member: it has what was acknowledged, and grants larger fences. Other groups do not
// exist, and the directories have nothing of them. All members are killed.
func (c *tenants) wantWhole() {
	c.T.Helper()
	for _, i := range c.Running() {
		list, err := grouptest.Collect(c.Nodes[i].Groups(c.within()))
		grouptest.Must(c.T, err)
		if len(list) != 1+len(c.written) {
			c.T.Errorf("member %d lists %v, want %v", i, list, slices.Collect(maps.Keys(c.written)))
		}
		for name := range c.fences {
			value, exists := c.written[name]
			if !exists {
				_, err := c.Nodes[i].WithGroup(name).FencedLock("l").TryLock(c.within())
				grouptest.WantError(c.T, err, conclave.ErrGroupNotFound)
				continue
			}
			e, err := c.Nodes[i].WithGroup(name).KV().Get(c.within(), "k")
			if err != nil || string(e.Value) != value {
				c.T.Errorf("member %d, group %s: %q, %v; want %q", i, name, e.Value, err, value)
			}
			c.lock(i, name)
		}
	}
	c.wantLogs()
}

// wantLogs kills the members, and checks that the directory of each has the logs of the groups that exist, and nothing of others.
func (c *tenants) wantLogs() {
	c.T.Helper()
	list, err := grouptest.Collect(c.Nodes[c.Running()[0]].Groups(c.within()))
	grouptest.Must(c.T, err)
	var want []uint32
	for _, g := range list[1:] {
		want = append(want, g.Number)
	}
	running := c.Running()
	c.KillAll()
	for _, i := range running {
		if got := logsOn(c.T, c.Seams[i].FS); !slices.Equal(got, want) {
			c.T.Errorf("the directory of member %d has logs of the groups %v, want %v", i, got, want)
		}
	}
}

// logsOn returns the numbers of the further groups of which a directory has anything.
func logsOn(t testing.TB, disk vfs.FS) []uint32 {
	t.Helper()
	store, err := storage.Open(storage.Options{Dir: "data", FS: disk, Access: storage.ReadOnly})
	grouptest.Must(t, err)
	defer store.Close()
	log, err := raftlog.Open(store)
	grouptest.Must(t, err)
	numbers, err := raftlog.Groups(log)
	grouptest.Must(t, err)
	return numbers
}
