package conclave

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/wire"
)

// Who does not belong to the group is turned away, and the group goes on.

// journal is what a member logs, for who waits for a line of it.
type journal struct {
	mu    sync.Mutex
	text  strings.Builder // guarded by mu
	moved chan struct{}   // guarded by mu; closed by the next line
}

func newJournal() *journal { return &journal{moved: make(chan struct{})} }

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.moved)
	j.moved = make(chan struct{})
	return j.text.Write(line)
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (j *journal) length() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Len()
}

// await blocks until something was logged behind the first so many bytes.
func (j *journal) await(t *testing.T, behind int, want string) {
	t.Helper()
	for ctx := within(t, 30*time.Second); ; {
		j.mu.Lock()
		found, moved := strings.Contains(j.text.String()[behind:], want), j.moved
		j.mu.Unlock()
		if found {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			t.Fatalf("nobody has logged %q", want)
		}
	}
}

// journaled is a group of three with what they log.
func journaled(t *testing.T, edit func(*Config)) (*testGroup, *journal) {
	t.Helper()
	j := newJournal()
	g := group(t, 3, func(_ int, c *Config, _ *cluster.Seams) {
		c.Logger = j.logger()
		if edit != nil {
			edit(c)
		}
	})
	return g, j
}

// goesOn checks that each member can lock.
func (g *testGroup) goesOn() {
	g.t.Helper()
	for _, n := range g.nodes {
		l := n.FencedLock("goes on")
		mustLock(g.t, l)
		mustUnlock(g.t, l)
	}
}

// knock opens a member that is not to come in, until the group's journal says
// the reason and its own that it met nobody. It returns Open's error.
func knock(t *testing.T, c Config, j *journal, reason string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t, 60*time.Second))
	failed, behind, own := make(chan error, 1), j.length(), newJournal()
	c.Logger = own.logger()
	go func() {
		n, err := Open(ctx, &c)
		if err == nil {
			n.Close(expired)
		}
		failed <- err
	}()
	j.await(t, behind, reason)
	own.await(t, 0, "join failed")
	cancel()
	err := <-failed
	if err == nil {
		t.Fatal("a stranger was let in")
	}
	return err
}

// wantRefused is for what Open says to those who were turned away at the door.
func wantRefused(t *testing.T, err error, reason string) {
	t.Helper()
	wantUnavailable(t, err)
	if !strings.Contains(err.Error(), "refused by the member") || !strings.Contains(err.Error(), reason) {
		t.Errorf("%q does not say %q", err, reason)
	}
}

func TestMembersOfOtherGroups(t *testing.T) {
	g, j := journaled(t, nil)
	c := quick(t)
	c.Group, c.Expect, c.Join = "other", 3, g.configs[0].Join
	wantRefused(t, knock(t, c, j, "another group"), `one member is configured for group`)
	g.goesOn()
}

// Two groups of one name that were formed apart stay apart, also when a member
// of one that looks for its own is told to look among the other.
func TestMembersOfOtherClusters(t *testing.T) {
	g, j := journaled(t, nil)
	apart := group(t, 3, nil)
	apart.closeAll()
	c := apart.configs[0]
	c.Join = g.configs[0].Join
	wantUnavailable(t, knock(t, c, j, "another cluster"))
	g.goesOn()
	for _, n := range g.nodes {
		if members := n.Status().Members; len(members) != 3 {
			t.Errorf("it was taken in: %v", members)
		}
	}
	apart.startAll()
	apart.goesOn()
}

// A later version that no longer speaks this one's protocol is told so.
func TestMembersOfOtherProtocols(t *testing.T) {
	g, j := journaled(t, nil)
	c := dial(t, g.nodes[0].Addr())
	hello := &wire.Hello{MinProtocol: wire.ProtocolMax + 1, MaxProtocol: wire.ProtocolMax + 2, Group: "conclave", Member: 7, Kind: wire.Kind_PEER}
	body, err := proto.Marshal(hello)
	if err != nil {
		t.Fatal(err)
	}
	frame := binary.BigEndian.AppendUint32([]byte("conclave"), uint32(len(body)))
	frame = binary.BigEndian.AppendUint32(frame, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	if _, err := c.Write(append(frame, body...)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), "upgrade the older one") {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	j.await(t, 0, "no common protocol version")
	g.goesOn()
}

// Founders that expect different numbers never form a group, and say why.
func TestFoundersExpectTheSame(t *testing.T) {
	a, b := quick(t), quick(t)
	a.Join, b.Join = []string{b.Bind}, []string{a.Bind}
	a.Expect, b.Expect = 2, 3
	const says = "Expect and Voters must be the same everywhere"
	// When they have met is nowhere to be seen but in the error itself.
	for patience := time.Second; ; patience *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		errs := make(chan error, 2)
		for _, c := range []Config{a, b} {
			go func() {
				n, err := Open(ctx, &c)
				if err == nil {
					n.Close(expired)
				}
				errs <- err
			}()
		}
		first, second := <-errs, <-errs
		cancel()
		wantUnavailable(t, first)
		wantUnavailable(t, second)
		if t.Failed() || strings.Contains(first.Error(), says) && strings.Contains(second.Error(), says) {
			return
		}
		if patience > 20*time.Second {
			t.Fatalf("%v; %v; want %q", first, second, says)
		}
	}
}

// Whoever comes when the group has been formed is told at once that it is too late.
func TestLateMember(t *testing.T) {
	g, _ := journaled(t, nil)
	for _, expect := range []int{0, 3} {
		c := quick(t)
		c.Join, c.Expect = g.configs[0].Join, expect
		refused(t, c, nil, "formed without this member", "start it with the directory that it had")
	}
	g.goesOn()
}

// A copy of a directory is a second process that says it is the same member.
// Whichever is started first is the member.
func TestCopiedDirectory(t *testing.T) {
	g, j := journaled(t, nil)
	g.kill(2)
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(g.configs[2].Dir)); err != nil {
		t.Fatal(err)
	}
	g.start(2)
	g.leader()
	g.goesOn()
	c := g.configs[2]
	c.Dir, c.Bind = dir, "127.0.0.1:0"
	wantRefused(t, knock(t, c, j, "copied data directory"), "let it join with an empty one")
	g.goesOn()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Whatever comes in at the port that is not of ours is closed, and costs nothing
// for longer.
func TestJunkOnThePort(t *testing.T) {
	g, _ := journaled(t, nil)
	g.goesOn()
	before := runtime.NumGoroutine()
	junk := []string{
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + longName(160), // TLS
		strings.Repeat("\x00\xff\x17", 50_000),
		"conclave\xff\xff\xff\xff\x00\x00\x00\x00",     // a frame of 4 GiB follows
		"conclave\x00\x00\x00\x04\x00\x00\x00\x00junk", // wrong checksum
		"conclave\x00\x00\x00\x00\x00\x00\x00\x00",     // an empty frame for a hello
		"conc", // half open: nothing follows
		"",
	}
	var wg sync.WaitGroup
	for i := range 30 * len(junk) {
		c := dial(t, g.nodes[i%3].Addr())
		wg.Go(func() {
			// The member may close before all is written; what it says in the
			// end is for members of another version.
			_, _ = io.WriteString(c, junk[i%len(junk)])
			_, _ = io.Copy(io.Discard, c)
		})
	}
	g.goesOn()
	wg.Wait() // each is closed by the member
	g.goesOn()
	awaitGoroutines(t, before)
}

// awaitGoroutines blocks until no more than so many are left, and a few, as
// those of the group come and go.
func awaitGoroutines(t *testing.T, before int) {
	t.Helper()
	for ctx := within(t, 20*time.Second); runtime.NumGoroutine() > before+5; runtime.Gosched() {
		if ctx.Err() != nil {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
