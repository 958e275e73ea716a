package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A member process is this test binary in another role. It takes orders from the
// test and reports, a line of JSON each. The test may kill or stop it at any moment.

// order is a request of the test to a process. The first is "open".
type order struct {
	Seq    uint64
	Do     string
	Lock   string // each process has one handle for each lock
	Text   string // a key, or part of a log line
	Member conclave.MemberID
	Config memberConfig
}

type memberConfig struct {
	Dir     string
	Join    []string
	Expect  int
	TTL     time.Duration
	Timeout time.Duration // of Open; 0: a minute
	Level   uint32        // that the build supports; 0: its own
	Slow    bool          // the default timings, in place of shorter ones
	Checks  []string      // of the node's own session
}

// report answers an order. The first one, before any order, has the address on which
// the process listens.
type report struct {
	Seq      uint64
	Addr     string
	Fence    conclave.Fence
	Member   conclave.MemberID
	Leader   conclave.MemberID
	Standby  bool
	Level    uint32
	Sessions []conclave.SessionID
	Alive    []conclave.MemberID // according to gossip
	Critical []string            // checks
	Line     string              // that was logged
	Err      string
	Is       []string // the errors in reported that Err wraps
}

// reported are the errors that errors.Is finds across processes.
var reported = []error{conclave.ErrLocked, conclave.ErrNotHeld, conclave.ErrLockOwnershipLost, conclave.ErrSessionExpired, conclave.ErrClosed, conclave.ErrUnavailable, conclave.ErrUnknown, conclave.ErrCorrupt, conclave.ErrInvalid, conclave.ErrUpgradeRequired}

func (r report) failed(err error) report {
	if err != nil {
		r.Err = err.Error()
		for _, e := range reported {
			if errors.Is(err, e) {
				r.Is = append(r.Is, e.Error())
			}
		}
	}
	return r
}

func (r report) err() error {
	if r.Err == "" {
		return nil
	}
	err := errors.New(r.Err)
	for _, e := range reported {
		if slices.Contains(r.Is, e.Error()) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// served is the member inside of the process.
type served struct {
	listener net.Listener
	journal  *grouptest.Journal
	node     *conclave.Node
	member   *cluster.Member

	mu    sync.Mutex
	locks map[string]*conclave.FencedLock // guarded by mu
}

// runMember is the process: it ends when its standard input does, and so with the
// test.
func runMember() int {
	s := &served{locks: make(map[string]*conclave.FencedLock), journal: grouptest.NewJournal()}
	var err error
	if s.listener, err = listenAgain(os.Getenv("CONCLAVE_TEST_BIND")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex // one report at a time
	out := json.NewEncoder(os.Stdout)
	send := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r) // without a reader, the orders have ended as well
	}
	send(report{Addr: s.listener.Addr().String()})
	for in := json.NewDecoder(os.Stdin); ; {
		var o order
		if in.Decode(&o) != nil {
			break
		}
		if o.Do == "open" {
			send(s.carryOut(o)) // all other orders need the node
			continue
		}
		go func() { send(s.carryOut(o)) }()
	}
	if s.node != nil {
		grouptest.Kill(s.node)
	}
	return 0
}

func (s *served) carryOut(o order) report {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r := report{Seq: o.Seq}
	switch o.Do {
	case "open":
		if o.Config.Timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, o.Config.Timeout)
			defer cancel()
		}
		return r.failed(s.open(ctx, o.Config))
	case "lock", "try", "unlock", "fence":
		var err error
		r.Fence, err = s.use(ctx, o)
		return r.failed(err)
	case "lost": // answered when it has been lost
		select {
		case <-s.lock(o.Lock).Lost():
			return r
		case <-ctx.Done():
			return r.failed(ctx.Err())
		}
	case "close", "leave":
		return r.failed(s.end(ctx, o.Do))
	case "transfer":
		return r.failed(s.node.TransferLeadership(ctx, 0))
	case "campaign":
		return r.failed(s.campaign(ctx, o.Lock))
	case "critical":
		return s.critical(ctx, r, o.Member)
	case "status":
		status := s.node.Status()
		r.Member, r.Leader, r.Standby = status.ID, status.Leader, status.Role == conclave.Standby
		return r
	case "alive":
		r.Alive = s.alive()
		return r
	case "level":
		var err error
		r.Level, err = s.member.Replica().FeatureLevel(ctx)
		return r.failed(err)
	case "sessions":
		var err error
		r.Sessions, err = s.sessions(ctx)
		return r.failed(err)
	case "hold":
		var err error
		r.Fence, err = s.hold(ctx, o.Lock)
		return r.failed(err)
	case "key": // answered when it exists
		return r.failed(s.awaitKey(ctx, o.Text))
	case "logged": // answered when it was
		line, err := s.journal.Find(ctx, 0, o.Text)
		_, r.Line, _ = strings.Cut(line, "msg=")
		return r.failed(err)
	}
	return r.failed(fmt.Errorf("unknown order %q", o.Do))
}

// use carries out an order about a lock.
func (s *served) use(ctx context.Context, o order) (conclave.Fence, error) {
	switch lock := s.lock(o.Lock); o.Do {
	case "lock":
		return lock.Lock(ctx)
	case "try":
		return lock.TryLock(ctx)
	case "unlock":
		return 0, lock.Unlock(ctx)
	default:
		return lock.Fence()
	}
}

func (s *served) end(ctx context.Context, how string) error {
	if how == "leave" {
		return s.node.Leave(ctx)
	}
	return s.node.Close(ctx)
}

func (s *served) open(ctx context.Context, c memberConfig) (err error) {
	ctx = cluster.WithSeams(ctx, cluster.Seams{FeatureLevel: c.Level, Started: func(m *cluster.Member) { s.member = m }})
	config := &conclave.Config{
		Dir: c.Dir, Listener: s.listener, Join: c.Join, Expect: c.Expect, SessionTTL: c.TTL, SessionChecks: c.Checks,
		Logger: slog.New(slog.NewTextHandler(s.journal, nil)),
	}
	if !c.Slow {
		config.HeartbeatInterval, config.ElectionTimeout = 20*time.Millisecond, 200*time.Millisecond
	}
	s.node, err = conclave.Open(ctx, config)
	return err
}

// lingering is the name of a lock that lingers.
const lingering = "lingering"

func lingers(lock string) bool { return lock == lingering }

func (s *served) lock(name string) *conclave.FencedLock {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks[name] == nil {
		var opts []conclave.LockOption
		if lingers(name) {
			opts = append(opts, conclave.Linger(time.Second))
		}
		s.locks[name] = s.node.FencedLock(name, opts...)
	}
	return s.locks[name]
}

// process is a member process as the test sees it.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	addr  string
	ended chan struct{} // closed when the process has ended and been reaped

	mu      sync.Mutex
	seq     uint64                 // guarded by mu
	pending map[uint64]chan report // guarded by mu
	killed  bool                   // guarded by mu; by the test
	stopped bool                   // by SIGSTOP; the test's goroutine only
	closing bool                   // guarded by mu; its node closes or leaves
}

// errEnded answers orders to a process that has ended.
var errEnded = errors.New("the process has ended")

// launch starts a process, which listens when launch returns, and waits for "open".
func launch(t testing.TB, bind string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan struct{}), pending: make(map[uint64]chan report)}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(program)
	// A data race must be reported before the process is killed.
	p.cmd.Env = append(os.Environ(), "CONCLAVE_TEST_PROCESS=member", "CONCLAVE_TEST_BIND="+bind, "GORACE=halt_on_error=1")
	p.cmd.WaitDelay = time.Minute // a process that it has started may keep its output open
	stderr := new(strings.Builder)
	p.cmd.Stderr = stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.in = in
	reader := json.NewDecoder(bufio.NewReader(out))
	var hello report
	helloErr := reader.Decode(&hello)
	go p.read(reader, stderr)
	t.Cleanup(p.kill)
	if helloErr != nil {
		t.Fatalf("no report from a process: %v", helloErr)
	}
	p.addr = hello.Addr
	return p
}

// read delivers the reports until the process ends, and reaps it.
func (p *process) read(reports *json.Decoder, stderr *strings.Builder) {
	for {
		var r report
		if err := reports.Decode(&r); err != nil {
			break
		}
		p.mu.Lock()
		answered := p.pending[r.Seq]
		delete(p.pending, r.Seq)
		p.mu.Unlock()
		answered <- r
	}
	state := p.cmd.Wait()
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	if !killed {
		p.t.Errorf("a process has ended by itself: %v\n%s", state, stderr)
	}
	close(p.ended)
}

// kill is kill -9. It returns when the process has ended.
func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	_ = p.cmd.Process.Kill() // fails when it has ended already
	<-p.ended
	_ = p.in.Close()
}

// do sends an order and waits for its report.
func (p *process) do(o order) (report, error) {
	p.mu.Lock()
	p.seq++
	o.Seq = p.seq
	answered := make(chan report, 1)
	p.pending[o.Seq] = answered
	line, err := json.Marshal(o)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	p.mu.Unlock()
	if err != nil {
		return report{}, errEnded
	}
	select {
	case r := <-answered:
		return r, r.err()
	case <-p.ended:
		return report{}, errEnded
	}
}

// ask is do for an order about a lock.
func (p *process) ask(what, lock string) (conclave.Fence, error) {
	r, err := p.do(order{Do: what, Lock: lock})
	return r.Fence, err
}

// must is ask that fails the test on an error.
func (p *process) must(what, lock string) conclave.Fence {
	p.t.Helper()
	f, err := p.ask(what, lock)
	if err != nil {
		p.t.Fatalf("%s %q: %v", what, lock, err)
	}
	return f
}

// awaitConnected waits until each other member has accepted a connection of process i.
func (g *processGroup) awaitConnected(i int) {
	g.t.Helper()
	for j, p := range g.members {
		if j == i {
			continue
		}
		status, err := p.do(order{Do: "status"})
		mustSucceed(g.t, err)
		_, err = g.members[i].do(order{Do: "logged", Text: `"peer connected" member=` + status.Member.String()})
		mustSucceed(g.t, err)
	}
}
