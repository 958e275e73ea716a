package cluster

import (
	"context"
	"errors"
	"iter"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// alone returns the configuration of a group of one, in memory.
func alone(t *testing.T) Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Name: "alone", Group: "test", Listener: l, Advertise: l.Addr().String(),
		Expect: 1, Voters: 1, Heartbeat: 20 * time.Millisecond, Election: 100 * time.Millisecond,
		Logger: quiet, MaxCalls: 1000,
		LoadMachine: func(state iter.Seq2[[]byte, []byte]) (Machine, error) { return machine.Load(state) },
		FirstState:  machine.FirstState,
		Callbacks: replica.Callbacks{
			Restored: func(Machine) {}, Changed: func([]fact.KeyChange, []fact.LeaderChange) {}, Ended: func(fact.Ended) {},
			LeaderChanged: func(uint64, uint64) {}, Woke: func() {},
		},
		Commands: machine.Commands{},
	}
}

func start(t *testing.T, cfg Config) *Member {
	t.Helper()
	m, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// trackedCall is a call that counts how it ends.
type trackedCall struct {
	mu       sync.Mutex
	answered int
	failed   int
	err      error
	done     chan struct{} // closed at the first end
}

func newTrackedCall() *trackedCall { return &trackedCall{done: make(chan struct{})} }

func (c *trackedCall) end(answered, failed int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered+c.failed == 0 {
		close(c.done)
	}
	c.answered, c.failed, c.err = c.answered+answered, c.failed+failed, err
}

func (c *trackedCall) Deliver(wire.Ticket, *wire.Reply, bool)          { c.end(1, 0, nil) }
func (c *trackedCall) Fail(err error)                                  { c.end(0, 1, err) }
func (c *trackedCall) Cancelled(bool)                                  {}
func (c *trackedCall) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }
func (c *trackedCall) endedOnce() bool                                 { return c.answered+c.failed == 1 }

var renewal = func() []byte {
	b, err := proto.Marshal(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}})
	if err != nil {
		panic(err)
	}
	return b
}()

// Stop returns when the member has stopped, in any state and from many goroutines.
func TestStop(t *testing.T) {
	for name, stop := range map[string]func(*Member){
		"once":  func(m *Member) { m.Stop() },
		"twice": func(m *Member) { m.Stop(); m.Stop() },
		"by many at once": func(m *Member) {
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(m.Stop)
			}
			wg.Wait()
		},
		"when it has a leader": func(m *Member) {
			if err := m.replica.Read(context.Background(), func(Machine) {}); err != nil {
				t.Error(err)
			}
			m.Stop()
		},
		"during a leadership transfer": func(m *Member) {
			var wg sync.WaitGroup
			wg.Go(func() { _ = m.replica.TransferLeadership(context.Background(), 12345) })
			m.Stop()
			wg.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := start(t, alone(t))
			stop(m)
			select {
			case <-m.Done():
			default:
				t.Error("not done after Stop")
			}
			if err := m.Err(); err != nil {
				t.Errorf("Err after Stop: %v", err)
			}
			if l, err := net.Listen("tcp", m.cfg.Advertise); err != nil {
				t.Errorf("its port is not free: %v", err)
			} else {
				_ = l.Close()
			}
		})
	}
}

func encoded(command []byte) func() []byte { return func() []byte { return command } }

// A call made while the member stops, or afterwards, ends exactly once.
func TestStop_CallsEndOnce(t *testing.T) {
	m := start(t, alone(t))
	const callers, each = 4, 100
	calls := make([]*trackedCall, callers*each)
	var wg sync.WaitGroup
	half := make(chan struct{}, callers)
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				c := newTrackedCall()
				calls[i*each+j] = c
				m.replica.Submit(len(renewal), encoded(renewal), c, true)
				if j == each/2 {
					half <- struct{}{}
				}
			}
		})
	}
	for range callers {
		<-half
	}
	m.Stop()
	wg.Wait()
	late := newTrackedCall()
	m.replica.Submit(len(renewal), encoded(renewal), late, false)
	for i, c := range append(calls, late) {
		<-c.done
		if c.mu.Lock(); !c.endedOnce() || c.failed > 0 && !errors.Is(c.err, ErrStopped) {
			t.Errorf("call %d: %d outcomes, %d failures, %v", i, c.answered, c.failed, c.err)
		}
		c.mu.Unlock()
	}
	if late.failed != 1 {
		t.Error("a call after the end was answered")
	}
	if err := m.replica.Read(t.Context(), func(Machine) { t.Error("read after the end") }); !errors.Is(err, ErrStopped) {
		t.Errorf("a read after the end: %v", err)
	}
	if err := m.replica.TransferLeadership(t.Context(), 0); !errors.Is(err, ErrStopped) {
		t.Errorf("a transfer after the end: %v", err)
	}
}

// A member that cannot find its group releases everything when its context is done.
func TestStart_ContextDone(t *testing.T) {
	for name, give := range map[string]func() (context.Context, context.CancelFunc){
		"before it begins": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		},
		"while it waits": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 50*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := alone(t)
			cfg.Expect = 3
			ctx, cancel := give()
			defer cancel()
			if m, err := Start(ctx, cfg); m != nil || err == nil || !errors.Is(err, ctx.Err()) {
				t.Fatalf("%v, %v", m, err)
			}
			l, err := net.Listen("tcp", cfg.Advertise)
			if err != nil {
				t.Fatalf("its port is not free: %v", err)
			}
			_ = l.Close()
		})
	}
}

// A panic on the loop, raft's or a callback's, stops the member and not the host, and
// fails pending calls.
func TestStop_PanicOnLoop(t *testing.T) {
	m := start(t, alone(t))
	stuck := newTrackedCall()
	m.replica.Post(func(c *core.Core) {
		c.Submit(renewal, stuck, true)
		panic("a bug")
	})
	<-m.Done()
	if err := m.Err(); err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("it stopped for %v", err)
	}
	<-stuck.done
	if !stuck.endedOnce() || !errors.Is(stuck.err, ErrStopped) || !strings.Contains(stuck.err.Error(), "a bug") {
		t.Errorf("%d outcomes, %d failures, %v", stuck.answered, stuck.failed, stuck.err)
	}
	m.Stop()
	if m.Err() == nil {
		t.Error("Err is nil after Stop")
	}
}
