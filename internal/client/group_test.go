package client

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/leaseclock"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// fakeGroup is a group of one without a log. Its goroutine applies each command to a
// machine and delivers the outcomes, unless commands are held back.
type fakeGroup struct {
	client *Client
	began  time.Time
	clock  suspendable // of the client

	mu          sync.Mutex
	changed     sync.Cond        // on mu: the queue, held, busy or closed
	machine     *machine.Machine // guarded by mu
	incarnation wire.ID          // guarded by mu
	index, seq  uint64           // guarded by mu
	calls       map[uint64]Call  // guarded by mu; submitted, by ticket
	queue       []queuedCommand  // guarded by mu; not applied yet
	held        bool             // guarded by mu; nothing is applied
	sent        bool             // guarded by mu; what is held back counts as sent
	busy        bool             // guarded by mu; outcomes are being delivered
	closed      bool             // guarded by mu
	applied     []*wire.Command  // guarded by mu

	late    int                      // guarded by mu; so many registrations come too late
	refuses func(*wire.Command) bool // guarded by mu; the group is too busy for a command; nil: for none
}

// suspendable is the clocks of a machine that a test suspends.
type suspendable struct {
	leaseclock.Source
	slept  atomic.Int64
	looks  atomic.Int64           // how often the suspended time was read
	onRead atomic.Pointer[func()] // nil: nothing
}

// atRead has f run when the clock is read.
func (s *suspendable) atRead(f func()) { s.onRead.Store(&f) }

func (s *suspendable) Running() time.Duration {
	if f := s.onRead.Load(); f != nil {
		(*f)()
	}
	return s.Source.Running()
}

// suspend lets time pass as if the machine had been suspended: no timer and no monotonic
// clock notices.
func (s *suspendable) suspend(d time.Duration) { s.slept.Add(int64(d)) }

func (s *suspendable) Suspended(known, running time.Duration) time.Duration {
	s.looks.Add(1)
	slept := time.Duration(s.slept.Load())
	return slept + s.Source.Suspended(known-slept, running)
}

// heartbeat wakes the loop later than the last look at the suspended time counts.
func (g *fakeGroup) heartbeat() {
	time.Sleep(2 * time.Millisecond) // virtual: the callers are in bubbles
	g.client.Woke()
}

type queuedCommand struct {
	command []byte
	call    Call
}

const fakeTTL = 10 * time.Second

// newFake returns a registered client of a fake group.
func newFake(t testing.TB) (*Client, *fakeGroup) {
	t.Helper()
	return newFakeThat(t, nil)
}

// newFakeThat is newFake with that Config.Idle.
func newFakeThat(t testing.TB, idles func() bool) (*Client, *fakeGroup) {
	t.Helper()
	g := &fakeGroup{machine: machine.New(), incarnation: wire.ID{1}, calls: make(map[uint64]Call), began: time.Now()}
	g.clock.Source = leaseclock.System()
	c := newClient(Config{
		TTL: fakeTTL, IncarnationTTL: time.Minute, Logger: slog.New(slog.DiscardHandler),
		LeaseEnded: func(wire.ID, error) {}, HoldLost: func(string, uint64) {}, Idle: idles,
	}, leaseclock.New(&g.clock))
	g.client = c
	g.changed.L = &g.mu
	c.Connect(g, func(attempt uint32, ttl time.Duration) *wire.Command {
		return &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{
			Member: 1, Boot: 1, NextToken: []byte("0123456789abcdef"), FeatureLevel: wire.FeatureLevel, Attempt: attempt, Ttl: int64(ttl),
		}}}
	})
	var loop sync.WaitGroup
	loop.Go(g.run)
	t.Cleanup(func() {
		c.StopRenewing()
		g.set(func() { g.closed = true })
		loop.Wait()
	})
	if err := c.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, g
}

func (g *fakeGroup) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	g.changed.Broadcast()
}

func (g *fakeGroup) Submit(_ int, encode func() []byte, c Call, _ bool) {
	command := encode()
	g.set(func() { g.queue = append(g.queue, queuedCommand{command, c}) })
}

func (g *fakeGroup) Renew(size int, encode func() []byte, c Call) { g.Submit(size, encode, c, true) }

func (g *fakeGroup) Watch(ctx context.Context, prefix string, after uint64, yield func(fact.KeyChange) bool) error {
	return g.client.FollowKeys(ctx, prefix, after, yield)
}

func (g *fakeGroup) Observe(ctx context.Context, election string, yield func(*fact.Leader) bool) error {
	return g.client.FollowLeader(ctx, election, yield)
}

func (g *fakeGroup) FollowShards(ctx context.Context, set string, yield func(ShardsUpdate) bool) error {
	return g.client.FollowShards(ctx, set, yield)
}

func (*fakeGroup) Process() uint64 { return 1 }

// hold holds back the commands that are submitted from now on.
func (g *fakeGroup) hold() { g.set(func() { g.held = true }) }

// release applies the commands that were held back.
func (g *fakeGroup) release() {
	g.set(func() { g.held = false })
	g.settle()
}

// settle blocks until every command was applied.
func (g *fakeGroup) settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.busy || len(g.queue) > 0 && !g.held {
		g.changed.Wait()
	}
}

func (g *fakeGroup) run() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.closed {
		if g.held || g.busy || len(g.queue) == 0 {
			g.changed.Wait()
			continue
		}
		q := g.queue[0]
		g.queue = g.queue[1:]
		g.apply(q)
	}
}

func (g *fakeGroup) apply(q queuedCommand) {
	g.seq++
	g.calls[g.seq] = q.call
	command := new(wire.Command)
	if err := proto.Unmarshal(q.command, command); err != nil {
		panic(err)
	}
	if g.refuses != nil && g.refuses(command) {
		t := wire.Ticket{Incarnation: g.incarnation, Seq: g.seq}
		g.deliver(fact.Result{Outcomes: []fact.Outcome{{Ticket: t, Reply: &wire.Reply{Code: wire.Code_BUSY}}}})
		return
	}
	if command.GetRegister() != nil && g.late > 0 {
		g.late--
		t := wire.Ticket{Incarnation: g.incarnation, Seq: g.seq}
		g.deliver(fact.Result{Outcomes: []fact.Outcome{{Ticket: t, Reply: &wire.Reply{Code: wire.Code_UNKNOWN_INCARNATION}}}})
		return
	}
	g.applied = append(g.applied, command)
	g.deliver(g.entry(&wire.Submission{
		Member: 1, Incarnation: g.incarnation[:], Calls: []*wire.Call{{Seq: g.seq, Command: q.command}},
	}))
}

// entry applies one entry with group time.
func (g *fakeGroup) entry(s ...*wire.Submission) fact.Result {
	batch, err := proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Time: int64(time.Since(g.began)), Submissions: s})
	if err != nil {
		panic(err)
	}
	g.index++
	return g.machine.Apply(g.index, 1, batch)
}

func (g *fakeGroup) deliver(r fact.Result) {
	g.busy = true
	var deliveries []func()
	r.InOrder(func(o fact.Outcome) {
		if call := g.calls[o.Ticket.Seq]; call != nil && o.Ticket.Incarnation == g.incarnation {
			deliveries = append(deliveries, func() { call.Deliver(o.Ticket, o.Reply, o.More) })
			if !o.More {
				delete(g.calls, o.Ticket.Seq)
			}
		}
	}, func(e fact.Ended) {
		deliveries = append(deliveries, func() { g.client.SessionEnded(e) })
	})
	g.mu.Unlock()
	g.client.Changed(r.Keys, r.Leaders)
	g.client.ShardsChanged(r.Shards)
	g.client.Recalled(r.Recalls)
	for _, deliver := range deliveries {
		deliver()
	}
	g.mu.Lock()
	g.busy = false
	g.changed.Broadcast()
}

// tick applies an entry without commands, which is what makes deadlines take effect.
func (g *fakeGroup) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.busy {
		g.changed.Wait()
	}
	g.deliver(g.entry())
}

func (g *fakeGroup) Cancel(c Call) {
	g.mu.Lock()
	unsent := false
	for i, q := range g.queue {
		if q.call == c && !g.sent {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			unsent = true
			break
		}
	}
	g.mu.Unlock()
	c.Cancelled(!unsent)
}

func (g *fakeGroup) Query(_ context.Context, q machine.Query, opts QueryOptions) (any, error) {
	g.settle()
	g.mu.Lock()
	finish := q.Begin(g.machine)
	if opts.Fixed != nil {
		opts.Fixed()
	}
	g.mu.Unlock()
	return finish(), nil
}

func (g *fakeGroup) Reregister(expired wire.ID, register func() ([]byte, Call)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.incarnation != expired {
		return
	}
	calls := g.calls
	g.calls = make(map[uint64]Call)
	g.incarnation[0]++
	g.seq = 0
	command, call := register()
	g.queue = append([]queuedCommand{{command, call}}, g.queue...)
	g.mu.Unlock()
	for _, c := range calls {
		c.Fail(tickets.ErrUnregistered)
	}
	g.mu.Lock()
	g.changed.Broadcast()
}

func (*fakeGroup) Registered(*wire.Reply) {}

func (g *fakeGroup) Level() uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	level, _ := g.machine.Level()
	return level
}

func (*fakeGroup) Unreachable() string { return "" }

// replaceState acts as if a snapshot had replaced the state.
func (g *fakeGroup) replaceState() {
	g.client.StateReplaced(func(q machine.Query) any {
		g.mu.Lock()
		defer g.mu.Unlock()
		return q.Begin(g.machine)()
	})
}

// last returns the command that was applied last.
func (g *fakeGroup) last() *wire.Command {
	g.settle()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.applied[len(g.applied)-1]
}

func (g *fakeGroup) lock(name string) *machine.LockView {
	g.settle()
	g.mu.Lock()
	defer g.mu.Unlock()
	return machine.Ask[*machine.LockView](g.machine, machine.LockQuery{Space: wire.Space_LOCK, Name: name})
}

func newLock(c *Client, l *Lease, name string) *Lock {
	k := new(Lock)
	k.Init(c, LockConfig{Lease: l, Space: wire.Space_LOCK, Name: name})
	return k
}

func mustOpen(t *testing.T, c *Client, ttl time.Duration) *Lease {
	t.Helper()
	l, err := c.Open(t.Context(), LeaseConfig{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAcquire(t *testing.T, l *Lock) uint64 {
	t.Helper()
	f, err := l.Acquire(t.Context(), true, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func wantKind(t *testing.T, err error, k Kind) {
	t.Helper()
	if !IsKind(err, k) {
		t.Errorf("got %v, want %s", err, kindNames[k])
	}
}
