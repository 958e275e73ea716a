package conclave

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/conclave-go/conclave/cluster"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("CONCLAVE_TEST_PROCESS"); role != "" {
		os.Exit(processes[role]())
	}
	goleak.VerifyTestMain(m)
}

// processes are what this test binary does when a test starts it as a process
// of its own.
var processes = map[string]func() int{}

// testGroup is a group of three in this process, with everything that the
// public API does not let a test replace.
type testGroup struct {
	t       testing.TB
	configs []Config
	seams []cluster.Seams
	nodes   []*Node
}

// group forms a group of n members. edit may change a member's configuration
// and seams before it starts; nil changes nothing.
func group(t testing.TB, n int, edit func(i int, c *Config, h *cluster.Seams)) *testGroup {
	t.Helper()
	g := &testGroup{t: t, configs: make([]Config, n), seams: make([]cluster.Seams, n), nodes: make([]*Node, n)}
	var join []string
	listeners := make([]net.Listener, n)
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
		join = append(join, l.Addr().String())
	}
	for i := range n {
		c := &g.configs[i]
		*c = Config{
			Name: fmt.Sprint("member-", i), Dir: filepath.Join(t.TempDir(), "data"),
			Bind: join[i], Listener: listeners[i], Join: join, Expect: n, Voters: min(n|1, 7),
			HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond,
			SessionTTL: 2 * time.Second, Logger: testLogger(t, i),
		}
		if n == 1 {
			c.Join = nil
		}
		if edit != nil {
			edit(i, c, &g.seams[i])
		}
	}
	t.Cleanup(func() { g.closeAll() })
	g.startAll()
	return g
}

// testLogger is loud with CONCLAVE_TEST_LOG=1.
func testLogger(t testing.TB, i int) *slog.Logger {
	if os.Getenv("CONCLAVE_TEST_LOG") == "" {
		return nil
	}
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	return slog.New(slog.NewTextHandler(os.Stderr, options)).With("member", i, "test", t.Name())
}

func (g *testGroup) startAll() {
	g.t.Helper()
	var wg sync.WaitGroup
	for i := range g.nodes {
		wg.Go(func() { g.start(i) })
	}
	wg.Wait()
	if g.t.Failed() {
		g.t.FailNow()
	}
}

// start opens a member, again if it had been open.
func (g *testGroup) start(i int) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 30*time.Second)
	defer cancel()
	c := g.configs[i]
	g.configs[i].Listener = nil // used up; from now on Bind is listened on
	node, err := Open(cluster.WithSeams(ctx, g.seams[i]), &c)
	if err != nil {
		g.t.Errorf("member %d: %v", i, err)
		return
	}
	g.nodes[i] = node
}

// kill stops a member without a farewell.
func (g *testGroup) kill(i int) {
	if n := g.nodes[i]; n != nil {
		g.nodes[i] = nil
		n.Close(expired)
	}
}

func (g *testGroup) closeAll() {
	var wg sync.WaitGroup
	for i := range g.nodes {
		wg.Go(func() { g.kill(i) })
	}
	wg.Wait()
}

// leader waits until the members that run agree on one of them.
func (g *testGroup) leader() int {
	g.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if i, ok := g.agreed(); ok {
			return i
		}
		<-time.After(5 * time.Millisecond) // Status is a view, and three of them have to agree
	}
	g.t.Fatal("no leader that all agree on")
	return 0
}

func (g *testGroup) agreed() (leader int, ok bool) {
	leader = -1
	var id MemberID
	for i, n := range g.nodes {
		if n == nil {
			continue
		}
		s := n.Status()
		if s.Leader == 0 || id != 0 && s.Leader != id {
			return 0, false
		}
		id = s.Leader
		if s.Leader == n.id {
			leader = i
		}
	}
	return leader, leader >= 0
}

// crashable gives each member a disk that loses what was not synced when its
// power is cut.
func crashable(_ int, c *Config, h *cluster.Seams) {
	c.Dir = "data"
	h.FS = newMainsFS(vfs.NewCrashableMem())
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
