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
)

// Of the three in a group one is away again and again, for longer than the log
// reaches back. Of the others one leads, and one follows.
const (
	leads = iota
	follows
	away
)

// mains cuts a member's power before the nth operation that changes its disk: in
// that moment it falls silent, and its disk is what the next start will find.
type mains struct {
	group *grouptest.Group
	kept  int // percent of what is not synced
	rng   *rand.Rand
	gone  context.CancelFunc // called when the power is gone

	mu    sync.Mutex // guards what follows
	left  int        // operations until the cut
	disk  *vfs.MemFS
	wreck *vfs.MemFS // nil: the power is on
	at    string     // the operation that the cut came before
}

func (m *mains) String() string { return "mains" }

func (m *mains) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left == 0 {
		// First it cannot be heard any more: nothing that comes on the disk after
		// the moment that the wreck shows may be acknowledged.
		m.group.Net.Isolate(away)
		m.wreck = m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: m.kept, RNG: m.rng})
		m.at = fmt.Sprintf("%d %s", op.Kind, op.Path)
		m.gone()
	}
	return nil
}

// found is what the cut has left; nil is that it has not come, and does not come
// any more.
func (m *mains) found() (*vfs.MemFS, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = 0
	return m.wreck, m.at
}

// comeback is a group of three of which one member is away, and what was
// acknowledged in it.
type comeback struct {
	*grouptest.Group
	rng     *rand.Rand
	disk    *vfs.MemFS        // of who is away
	needed  bool              // the other follower is away too while the member comes back
	written map[string]string // keys that were acknowledged
	count   int               // of the keys written
	cut     int               // how often the power went
	before  int               // how often of these the member had to be sent a snapshot again
}

// A member that is far behind comes back, and while it starts and is sent the
// state over the network its power goes, before each operation on its disk in
// turn, with all, nothing or some of what is not synced kept. It starts again,
// catches up, has the same state as the others, votes, and has lost nothing that
// it had acknowledged. The others do not notice; or, where it takes this member
// to agree on anything while it comes back, they lose nothing.
func TestPowerCutWhileASnapshotIsInstalled(t *testing.T) {
	step := 2 // each operation is cut in one of the two scenes
	if testing.Short() {
		step = 14
	}
	for i, name := range []string{"needed by the leader", "beside the others"} {
		ok := t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(c *conclave.Config, h *cluster.Seams) { h.KeepEntries = 8 }, func(g *grouptest.Group) {
				c := newComeback(g, i == 0)
				for n := 1 + i; c.round(n, []int{0, 100, 50}[c.cut%3]); n += step {
				}
				t.Logf("%d power cuts, %d of them before the snapshot was installed", c.cut, c.before)
				if !testing.Short() && (c.before == 0 || c.before == c.cut) {
					t.Error("the cuts do not come before and after the installation")
				}
			})
		})
		if !ok {
			return // a member that has lost something need not ever catch up beside a leader
		}
	}
}

// newComeback leaves something of every kind in the group, more than one batch
// of a snapshot.
func newComeback(g *grouptest.Group, needed bool) *comeback {
	c := &comeback{
		Group: g, needed: needed, rng: rand.New(rand.NewPCG(7, 7)),
		disk: g.Seams[away].FS.(*vfs.MemFS), written: make(map[string]string),
	}
	c.lead(leads)
	e := &estate{t: g.T, node: g.Nodes[leads]}
	for i, do := range firstLife() {
		if _, err := do(g.T.Context(), e); err != nil {
			g.T.Fatalf("deed %d: %v", i, err)
		}
	}
	for _, key := range []string{"large/1", "large/2", "large/3", "last"} {
		grouptest.MustPut(g.T, e.node.KV(), key, strings.Repeat("v", 400<<10))
	}
	g.Kill(away)
	return c
}

// lead hands leadership to a member.
func (c *comeback) lead(i int) {
	c.T.Helper()
	for leader := c.Leader(); leader != i; leader = c.Leader() {
		err := c.Nodes[leader].TransferLeadership(grouptest.Within(c.T, 5*grouptest.BubbleElection), c.Nodes[i].id)
		if err != nil && !errors.Is(err, conclave.ErrInvalid) {
			c.T.Fatal(err)
		}
	}
}

// write has the leader write another key, and delete an older one.
func (c *comeback) write(ctx context.Context) error {
	c.count++
	key, value, old := keyOf(c.count), fmt.Sprint(c.count), keyOf(c.count-10)
	_, err := c.Nodes[leads].KV().Txn(ctx, conclave.OpPut(key, []byte(value)), conclave.OpDelete(old))
	if delete(c.written, old); err == nil { // or else it may be gone, and it may be not
		c.written[key] = value
	}
	return err
}

func keyOf(n int) string { return fmt.Sprintf("key/%06d", n) }

// round has the member come back, with a power cut before the nth operation on
// its disk. It reports whether the cut has come.
func (c *comeback) round(n, kept int) bool {
	c.T.Helper()
	for range 20 { // more than twice what is kept
		grouptest.Must(c.T, c.write(grouptest.Within(c.T, grouptest.BubbleElection)))
	}
	term := c.Nodes[leads].Status().Term
	if c.needed {
		c.Net.Isolate(follows)
	}
	wreck, at := c.startUntil(n, kept)
	if wreck != nil {
		c.cut++
		c.T.Logf("cut %d, before %s, %d %% kept", n, at, kept)
	}
	switch {
	case wreck != nil && c.needed:
		// The leader is not to be asked what was acknowledged.
		c.Net.Isolate(leads)
		c.Net.Rejoin(follows)
		c.Net.Partition(leads, follows)
		c.again(wreck)
		c.LeaderWithout(leads)
		c.wantWritten(follows)
		c.wantWritten(away)
		if c.T.Failed() {
			c.T.FailNow()
		}
		c.Net.Rejoin(leads)
		c.lead(leads)
	case wreck != nil:
		for range 10 { // the others go on, and what was half installed is out of date
			grouptest.Must(c.T, c.write(grouptest.Within(c.T, grouptest.BubbleElection)))
		}
		c.wantUndisturbed(term)
		c.again(wreck)
		c.wantUndisturbed(term)
	case c.needed:
		c.Net.Rejoin(follows)
	default:
		c.wantUndisturbed(term)
	}
	c.caughtUp()
	switch installed := c.Nodes[away].member.Status().Installed; {
	case wreck != nil && installed > 0:
		c.before++
	case wreck == nil && installed == 0:
		c.T.Error("nothing was installed")
	}
	c.wantSame()
	if !c.needed {
		c.vote()
	}
	c.Kill(away)
	return wreck != nil
}

// startUntil starts the member and goes on writing until its power is cut, or it
// has what the others have and takes part.
func (c *comeback) startUntil(n, kept int) (wreck *vfs.MemFS, at string) {
	c.T.Helper()
	ctx, gone := context.WithCancel(c.T.Context())
	defer gone()
	m := &mains{group: c.bubbleGroup, kept: kept, rng: c.rng, gone: gone, left: n, disk: c.disk}
	config, seams := c.Configs[away], c.Seams[away]
	config.Listener, seams.FS = c.Net.Listen(away, config.Bind), errorfs.Wrap(c.disk, m)
	type opened struct {
		node *conclave.Node
		err  error
	}
	opening := make(chan opened, 1)
	go func() {
		node, err := conclave.Open(cluster.WithSeams(ctx, seams), &config)
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
		c.Nodes[away] = o.node
		for i := 0; i < 5 && ctx.Err() == nil; i++ {
			c.writeUntil(ctx)
		}
	} else if ctx.Err() == nil {
		c.T.Fatalf("the member does not start: %v", o.err)
	}
	if wreck, at = m.found(); wreck != nil && o.err == nil {
		c.Kill(away)
	}
	return wreck, at
}

// writeUntil writes a key, or lets it be when ctx ends.
func (c *comeback) writeUntil(ctx context.Context) {
	c.T.Helper()
	if err := c.write(ctx); err != nil && ctx.Err() == nil {
		c.T.Fatal(err)
	}
	grouptest.Pass(time.Millisecond)
}

// again starts the member on what its power cut has left.
func (c *comeback) again(wreck *vfs.MemFS) {
	c.T.Helper()
	c.Net.Discard(away)
	c.Net.Rejoin(away)
	c.net.set(leads, away, c.needed)
	c.disk, c.Seams[away].FS = wreck, wreck
	c.Start(away)
}

// caughtUp waits until all have what the leader has now.
func (c *comeback) caughtUp() {
	c.T.Helper()
	c.Leader()
	grouptest.Must(c.T, c.write(grouptest.Within(c.T, 5*grouptest.BubbleElection)))
	target := c.Nodes[leads].Status().Commit
	for i, n := range c.Nodes {
		for waited := 0; n.Status().Applied < target; waited++ {
			if err := n.Err(); err != nil || waited > 600 {
				c.T.Fatalf("member %d is at %d of %d: %v", i, n.Status().Applied, target, err)
			}
			grouptest.Pass(grouptest.BubbleHeartbeat)
		}
	}
}

// wantUndisturbed checks that the leader leads on.
func (c *comeback) wantUndisturbed(term uint64) {
	c.T.Helper()
	for _, i := range []int{leads, follows} {
		if s := c.Nodes[i].Status(); s.Leader != c.Nodes[leads].id || s.Term != term {
			c.T.Errorf("member %d follows %v in term %d, and before it was %v in term %d", i, s.Leader, s.Term, c.Nodes[leads].id, term)
		}
	}
}

// wantWritten checks that a member knows all that was acknowledged.
func (c *comeback) wantWritten(i int) {
	c.T.Helper()
	for key, value := range c.written {
		e, err := c.Nodes[i].KV().Get(grouptest.Within(c.T, 5*grouptest.BubbleElection), key)
		if err != nil || string(e.Value) != value {
			c.T.Errorf("for member %d %q is %q, %v; acknowledged was %q", i, key, e.Value, err, value)
		}
	}
}

// wantSame checks that all have the same state.
func (c *comeback) wantSame() {
	c.T.Helper()
	want := holdings(c.T, c.Nodes[leads])
	for i, n := range c.Nodes {
		if got := holdings(c.T, n); got != want {
			c.T.Errorf("member %d has\n%s\nand the leader\n%s", i, got, want)
		}
		c.wantWritten(i)
	}
}

// vote takes the leader away for a moment: the others need each other's votes,
// and what they agree on holds.
func (c *comeback) vote() {
	c.T.Helper()
	c.Net.Isolate(leads)
	n := c.Nodes[c.LeaderWithout(leads)]
	grouptest.MustPut(c.T, n.KV(), "voted", fmt.Sprint(c.count))
	c.Net.Rejoin(leads)
	c.lead(leads)
}
