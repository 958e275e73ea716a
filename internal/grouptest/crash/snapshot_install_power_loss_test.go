package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/memdisk"
)

// The roles of the three members. The late one stops again and again, for longer than
// the log reaches back.
const (
	leader = iota
	follower
	late
)

// powerLoss is a member's power loss, before the nth operation that changes its
// disk: it is isolated, and the image of its disk is for its next start.
type powerLoss struct {
	group  *grouptest.Group
	member int
	kept   int // percent of the unsynced data
	rng    *rand.Rand
	lost   context.CancelFunc // called at the power loss

	mu    sync.Mutex // guards what follows
	left  int        // operations until the power loss
	disk  *memdisk.Disk
	image *vfs.MemFS // nil: no power loss yet
	at    string     // the operation before which the power was lost
}

func (m *powerLoss) String() string { return "power loss" }

// begin has the power loss happen before the nth operation from now on.
func (m *powerLoss) begin(g *grouptest.Group, disk *memdisk.Disk, n int, lost context.CancelFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.group, m.disk, m.left, m.lost = g, disk, n, lost
}

func (m *powerLoss) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left == 0 {
		// Isolated first: a write behind the image must not be acknowledged.
		m.group.Net.Isolate(m.member)
		m.image = m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: m.kept, RNG: m.rng})
		m.at = fmt.Sprintf("%d %s", op.Kind, op.Path)
		m.lost()
	}
	return nil
}

// result prevents a power loss from now on. It returns the image if there was one.
func (m *powerLoss) result() (*vfs.MemFS, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = 0
	return m.image, m.at
}

// lateMember is a group of three with a late member, and its acknowledged writes.
type lateMember struct {
	*grouptest.Group
	rng     *rand.Rand
	disk    *vfs.MemFS        // of the late member
	needed  bool              // the other follower is isolated while the late member catches up
	written map[string]string // acknowledged
	count   int               // of keys written
	cut     int               // power losses
	before  int               // of these, before the snapshot was installed
}

// A late member loses power while it starts and installs a snapshot, before each
// operation on its disk, with all, none or some of the unsynced data kept. It starts
// again, catches up to the same state as the others, votes, and has lost nothing
// that it had acknowledged. The others are not disturbed; where they need this
// member for a quorum, they lose nothing.
func TestPowerLoss_SnapshotInstall(t *testing.T) {
	step := 6
	switch {
	case *long:
		step = 2 // each operation is covered in one of the two cases
	case testing.Short():
		step = 40
	}
	for i, name := range []string{"needed for the quorum", "not needed for the quorum"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, 3, func(g *grouptest.Group) {
				c := newLateMember(g, i == 0)
				for n := 1 + i; c.round(n, []int{0, 100, 50}[c.cut%3]) && !t.Failed(); n += step {
				}
				t.Logf("%d power losses, %d of them before the snapshot was installed", c.cut, c.before)
				if !testing.Short() && !t.Failed() && (c.before == 0 || c.before == c.cut) {
					t.Error("want power losses before and after the installation")
				}
			}, grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.KeepEntries = 8 }))
		})
	}
}

// newLateMember creates something of every kind, more than one batch of a snapshot.
func newLateMember(g *grouptest.Group, needed bool) *lateMember {
	c := &lateMember{
		Group: g, needed: needed, rng: rand.New(rand.NewPCG(7, 7)),
		disk: g.Seams[late].FS.(*vfs.MemFS), written: make(map[string]string),
	}
	c.lead(leader)
	e := &workload{t: g.T, node: g.Nodes[leader]}
	for i, do := range firstProcess() {
		if _, err := do(g.T.Context(), e); err != nil {
			g.T.Fatalf("step %d: %v", i, err)
		}
	}
	for _, key := range []string{"large/1", "large/2", "large/3", "last"} {
		grouptest.MustPut(g.T, e.node.KV(), key, strings.Repeat("v", 400<<10))
	}
	g.Kill(late)
	return c
}

// lead transfers leadership to a member.
func (c *lateMember) lead(i int) {
	c.T.Helper()
	for leader := c.Leader(); leader != i; leader = c.Leader() {
		err := c.Nodes[leader].TransferLeadership(grouptest.Within(c.T, 5*grouptest.BubbleElection), c.ID(i))
		if err != nil && !errors.Is(err, conclave.ErrInvalid) {
			c.T.Fatal(err)
		}
	}
}

// write writes a new key on the leader, and deletes an old one.
func (c *lateMember) write(ctx context.Context) error {
	c.count++
	key, value, old := keyOf(c.count), fmt.Sprint(c.count), keyOf(c.count-10)
	_, err := c.Nodes[leader].KV().Txn(ctx, conclave.OpPut(key, []byte(value)), conclave.OpDelete(old))
	if delete(c.written, old); err == nil { // after an error it may or may not exist
		c.written[key] = value
	}
	return err
}

func keyOf(n int) string { return fmt.Sprintf("key/%06d", n) }

// round starts the late member, with a power loss before the nth operation on its
// disk. It reports whether there was one.
func (c *lateMember) round(n, kept int) bool {
	c.T.Helper()
	for range 20 { // more than twice the entries that the log keeps
		grouptest.Must(c.T, c.write(grouptest.Within(c.T, grouptest.BubbleElection)))
	}
	term := c.Nodes[leader].Status().Term
	if c.needed {
		c.Net.Isolate(follower)
	}
	image, at := c.startUntil(n, kept)
	if image != nil {
		c.cut++
		c.T.Logf("power loss %d, before %s, %d %% kept", n, at, kept)
	}
	switch {
	case image != nil && c.needed:
		// The other follower and the late member must have the acknowledged writes.
		c.Net.Isolate(leader)
		c.Net.Rejoin(follower)
		c.Net.Partition(leader, follower)
		c.again(image)
		c.LeaderWithout(leader)
		c.wantWritten(follower)
		c.wantWritten(late)
		if c.T.Failed() {
			c.T.FailNow()
		}
		c.Net.Rejoin(leader)
		c.lead(leader)
	case image != nil:
		for range 10 { // meanwhile the staged snapshot becomes outdated
			grouptest.Must(c.T, c.write(grouptest.Within(c.T, grouptest.BubbleElection)))
		}
		c.wantUndisturbed(term)
		c.again(image)
		c.wantUndisturbed(term)
	case c.needed:
		c.Net.Rejoin(follower)
	default:
		c.wantUndisturbed(term)
	}
	c.awaitCaughtUp()
	switch installed := c.Installed(late); {
	case image != nil && installed > 0:
		c.before++
	case image == nil && installed == 0:
		c.T.Error("no snapshot was installed")
	}
	c.wantSame()
	if !c.needed {
		c.vote()
	}
	c.Kill(late)
	return image != nil
}

// startUntil starts the late member and writes until it has lost power or caught up.
func (c *lateMember) startUntil(n, kept int) (image *vfs.MemFS, at string) {
	c.T.Helper()
	ctx, lost := context.WithCancel(c.T.Context())
	defer lost()
	disk := memdisk.On(c.disk)
	m := &powerLoss{group: c.Group, member: late, kept: kept, rng: c.rng, lost: lost, left: n, disk: disk}
	c.Seams[late].FS = errorfs.Wrap(disk, m)
	type opened struct {
		node *conclave.Node
		err  error
	}
	opening := make(chan opened, 1)
	go func() {
		node, err := c.OpenWith(ctx, late)
		opening <- opened{node, err}
	}()
	var o opened
	for done := false; !done; {
		select {
		case o = <-opening:
			done = true
		default:
			c.writeUntil(ctx)
		}
	}
	if o.err == nil {
		c.Nodes[late] = o.node
		for i := 0; i < 5 && ctx.Err() == nil; i++ {
			c.writeUntil(ctx)
		}
	} else if ctx.Err() == nil {
		c.T.Fatalf("the late member does not start: %v", o.err)
	}
	if image, at = m.result(); image != nil && o.err == nil {
		c.Kill(late)
	}
	return image, at
}

// writeUntil writes a key, and gives up when ctx ends.
func (c *lateMember) writeUntil(ctx context.Context) {
	c.T.Helper()
	if err := c.write(ctx); err != nil && ctx.Err() == nil {
		c.T.Fatal(err)
	}
	grouptest.Pass(time.Millisecond)
}

// again starts the late member on the image.
func (c *lateMember) again(image *vfs.MemFS) {
	c.T.Helper()
	c.Net.Discard(late)
	c.Net.Rejoin(late)
	if c.needed {
		c.Net.Partition(leader, late)
	}
	c.disk, c.Seams[late].FS = image, image
	c.Start(late)
}

// awaitCaughtUp waits until all members have applied the leader's commit index of now.
func (c *lateMember) awaitCaughtUp() {
	c.T.Helper()
	c.Leader()
	grouptest.Must(c.T, c.write(grouptest.Within(c.T, 5*grouptest.BubbleElection)))
	target := c.Nodes[leader].Status().Commit
	for i, n := range c.Nodes {
		for waited := 0; n.Status().Applied < target; waited++ {
			if err := n.Err(); err != nil || waited > 600 {
				c.T.Fatalf("member %d has applied %d of %d: %v", i, n.Status().Applied, target, err)
			}
			grouptest.Pass(grouptest.BubbleHeartbeat)
		}
	}
}

// wantUndisturbed checks that the leader still leads in its term.
func (c *lateMember) wantUndisturbed(term uint64) {
	c.T.Helper()
	for _, i := range []int{leader, follower} {
		if s := c.Nodes[i].Status(); s.Leader != c.ID(leader) || s.Term != term {
			c.T.Errorf("member %d follows %v in term %d; want %v in term %d", i, s.Leader, s.Term, c.ID(leader), term)
		}
	}
}

// wantWritten checks that a member has all that was acknowledged.
func (c *lateMember) wantWritten(i int) {
	c.T.Helper()
	for key, value := range c.written {
		e, err := c.Nodes[i].KV().Get(grouptest.Within(c.T, 5*grouptest.BubbleElection), key)
		if err != nil || string(e.Value) != value {
			c.T.Errorf("on member %d %q is %q, %v; want %q", i, key, e.Value, err, value)
		}
	}
}

// wantSame checks that all members have the same state.
func (c *lateMember) wantSame() {
	c.T.Helper()
	want := dump(c.T, c.Nodes[leader])
	for i, n := range c.Nodes {
		if got := dump(c.T, n); got != want {
			c.T.Errorf("member %d has\n%s\nthe leader has\n%s", i, got, want)
		}
		c.wantWritten(i)
	}
}

// vote isolates the leader for a moment, so that the others need each other's votes.
func (c *lateMember) vote() {
	c.T.Helper()
	c.Net.Isolate(leader)
	n := c.Nodes[c.LeaderWithout(leader)]
	grouptest.MustPut(c.T, n.KV(), "voted", fmt.Sprint(c.count))
	c.Net.Rejoin(leader)
	c.lead(leader)
}
