package grouptest

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/wire"
)

// journaled is a group of three with its log.
func journaled(t *testing.T, edit func(*conclave.Config)) (*Group, *Journal) {
	t.Helper()
	j := NewJournal()
	g := Start(t, 3, Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
		c.Logger = j.Logger()
		if edit != nil {
			edit(c)
		}
	}))
	return g, j
}

// mustBeRefused opens a member until the group has logged the reason for its refusal,
// and the member that a join failed. It returns Open's error.
func mustBeRefused(t *testing.T, c conclave.Config, j *Journal, reason string) error {
	t.Helper()
	behind := j.Length()
	return openUntil(t, c, func(own *Journal) {
		j.Await(t, behind, reason)
		own.Await(t, 0, "join failed")
	})
}

// openUntil opens a member that no group admits, until something is in its log. It returns Open's error.
func openUntil(t *testing.T, c conclave.Config, logged func(own *Journal)) error {
	t.Helper()
	ctx, cancel := context.WithCancel(Bounded(t))
	failed, own := make(chan error, 1), NewJournal()
	c.Logger = own.Logger()
	go func() {
		n, err := conclave.Open(ctx, &c)
		if err == nil {
			Kill(n)
		}
		failed <- err
	}()
	logged(own)
	cancel()
	err := <-failed
	if err == nil {
		t.Fatal("a foreign member was admitted")
	}
	return err
}

// wantRefused checks the error of Open for a member refused at the handshake.
func wantRefused(t *testing.T, err error, reason string) {
	t.Helper()
	wantUnavailable(t, err)
	for _, part := range []string{"refused by member", reason} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not contain %q", err, part)
		}
	}
}

func TestForeignMember_OtherGroup(t *testing.T) {
	t.Parallel()
	g, j := journaled(t, nil)
	c := SoloConfig(t)
	c.Group, c.Expect, c.Join = "other", 3, g.Configs[0].Join
	wantRefused(t, mustBeRefused(t, c, j, "another group"), `one member is configured for group`)
	g.WantWorking()
}

// Two groups of the same name stay apart, also when a member of one joins at addresses
// of the other.
func TestForeignMember_OtherCluster(t *testing.T) {
	t.Parallel()
	g, j := journaled(t, nil)
	apart := Start(t, 3)
	apart.KillAll()
	c := apart.Configs[0]
	c.Join = g.Configs[0].Join
	wantUnavailable(t, mustBeRefused(t, c, j, "another cluster"))
	g.WantWorking()
	for _, n := range g.Nodes {
		if members := n.Status().Members; len(members) != 3 {
			t.Errorf("it was admitted: %v", members)
		}
	}
	apart.Start(apart.All()...)
	apart.WantWorking()
}

// A peer without a common protocol version is refused with the advice to upgrade.
func TestForeignMember_NoCommonProtocol(t *testing.T) {
	t.Parallel()
	g, j := journaled(t, nil)
	c := dial(t, g.Nodes[0].Addr())
	hello := &wire.Hello{MinProtocol: wire.ProtocolMax + 1, MaxProtocol: wire.ProtocolMax + 2, Group: "conclave", Member: 7, Kind: wire.Kind_PEER}
	body, err := proto.Marshal(hello)
	if err != nil {
		t.Fatal(err)
	}
	frame := binary.BigEndian.AppendUint32([]byte("conclave"), uint32(len(body)))
	frame = binary.BigEndian.AppendUint32(frame, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	frame = append(append(frame, body...), make([]byte, 8)...) // and an empty proof
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), "upgrade the older one") {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	j.Await(t, 0, "no common protocol version")
	g.WantWorking()
}

// Founders with different Expect do not form a group, and report why.
func TestForming_DifferentExpect(t *testing.T) {
	t.Parallel()
	a, b := SoloConfig(t), SoloConfig(t)
	a.Join, b.Join = []string{b.Bind}, []string{a.Bind}
	a.Expect, b.Expect = 2, 3
	const want = "Expect and Voters must be the same everywhere"
	// Only the error shows when they have met.
	for patience := time.Second; ; patience *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		errs := make(chan error, 2)
		for _, c := range []conclave.Config{a, b} {
			go func() {
				n, err := conclave.Open(ctx, &c)
				if err == nil {
					Kill(n)
				}
				errs <- err
			}()
		}
		first, second := <-errs, <-errs
		cancel()
		wantUnavailable(t, first)
		wantUnavailable(t, second)
		if t.Failed() || strings.Contains(first.Error(), want) && strings.Contains(second.Error(), want) {
			return
		}
		if patience > 20*time.Second {
			t.Fatalf("%v; %v; want %q", first, second, want)
		}
	}
}

// A new process that finds a group joins it, whatever its Expect, and forms none.
func TestForming_TooLate(t *testing.T) {
	t.Parallel()
	g, _ := journaled(t, nil)
	for _, expect := range []int{0, 3} {
		c := SoloConfig(t)
		c.Join, c.Expect = g.Configs[0].Join, expect
		n, err := conclave.Open(Bounded(t), &c)
		Must(t, err)
		if id := n.Status().ID; !slices.ContainsFunc(n.Status().Members, func(m conclave.Member) bool { return m.ID == id && m.Role == conclave.Standby }) {
			t.Errorf("members %v, the new one is %v", n.Status().Members, id)
		}
		Must(t, n.Leave(Bounded(t)))
	}
	g.WantWorking()
}

// A copied directory makes a second process of the same member. The first one started
// is the member.
func TestForeignMember_CopiedDirectory(t *testing.T) {
	t.Parallel()
	g, j := journaled(t, nil)
	g.Kill(2)
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(g.Configs[2].Dir)); err != nil {
		t.Fatal(err)
	}
	g.Start(2)
	g.Leader()
	g.WantWorking()
	c := g.Configs[2]
	c.Dir, c.Bind = dir, "127.0.0.1:0"
	wantRefused(t, mustBeRefused(t, c, j, "copied data directory"), "on a copy of the data directory: stop that one")
	g.WantWorking()
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

// Connections that do not speak the protocol are closed and use nothing afterwards. It
// counts goroutines, so that no other test may run beside it.
func TestForeignMember_JunkOnPort(t *testing.T) {
	g, _ := journaled(t, nil)
	g.WantWorking()
	before := settledGoroutines(t)
	junk := []string{
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + strings.Repeat("x", 160), // TLS
		strings.Repeat("\x00\xff\x17", 50_000),
		"conclave\xff\xff\xff\xff\x00\x00\x00\x00",     // a frame of 4 GiB follows
		"conclave\x00\x00\x00\x04\x00\x00\x00\x00junk", // wrong checksum
		"conclave\x00\x00\x00\x00\x00\x00\x00\x00",     // an empty frame instead of a hello
		"conc", // half open: nothing follows
		"",
	}
	var wg sync.WaitGroup
	for i := range 30 * len(junk) {
		c := dial(t, g.Nodes[i%3].Addr())
		wg.Go(func() {
			// The member may close before all is written.
			_, _ = io.WriteString(c, junk[i%len(junk)])
			_, _ = io.Copy(io.Discard, c)
		})
	}
	g.WantWorking()
	wg.Wait() // the members have closed all of them
	g.WantWorking()
	awaitGoroutines(t, before)
}

// settledGoroutines counts the goroutines once the number has been the same for some
// rounds of gossip, which connects each pair of members when it first needs to.
func settledGoroutines(t *testing.T) (n int) {
	t.Helper()
	const rounds = 40
	ctx := Bounded(t)
	for same := 0; same < rounds; same++ {
		if now := runtime.NumGoroutine(); now != n {
			n, same = now, 0
		}
		if ctx.Err() != nil {
			t.Fatal("the number of goroutines does not settle")
		}
		Pass(100 * time.Millisecond)
	}
	return n
}

// awaitGoroutines blocks until there are about so many goroutines.
func awaitGoroutines(t *testing.T, before int) {
	t.Helper()
	for ctx := Bounded(t); runtime.NumGoroutine() > before+5; Pass(time.Millisecond) {
		if ctx.Err() != nil {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
