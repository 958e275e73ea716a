package clients

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// heartbeat is that of the members here.
const heartbeat = 20 * time.Millisecond

// member is a member's loop around a Server, with a core that has nothing to do but to answer.
type member struct {
	*Server
	fake    *fakeCore
	queue   chan func(*core.Core)
	addr    string
	ticked  func() // in each tick; nil: nothing
	members []string
	stopped chan struct{}
}

// fakeCore is a Core with the state of an empty group. The loop's goroutine owns it.
type fakeCore struct {
	applied uint64
	recheck *wire.Reply // of each request
	called  []core.Call
	refuses int // so many calls at once, as while this process is not registered
}

// emptyMachine is a machine of which only what is asked here has an answer.
type emptyMachine struct {
	core.Machine
	fake *fakeCore
}

func (emptyMachine) Now() int64              { return 7 }
func (emptyMachine) Level() (uint32, uint32) { return wire.FeatureLevel, wire.FeatureLevel }
func (m emptyMachine) Recheck(wire.Ticket, wire.ID, string, string) *wire.Reply {
	return m.fake.recheck
}

func (f *fakeCore) Machine() core.Machine             { return emptyMachine{fake: f} }
func (f *fakeCore) Status() core.Status               { return core.Status{Applied: f.applied} }
func (f *fakeCore) HearsLeader() bool                 { return true }
func (f *fakeCore) AttachClient(wire.ID, core.Client) {}
func (f *fakeCore) DetachClient(wire.ID, core.Client) {}
func (f *fakeCore) SubmitForClient(*wire.Submission)  {}
func (f *fakeCore) Submit(_ []byte, c core.Call, _ bool) {
	if f.refuses > 0 {
		f.refuses--
		tickets.Answer(c, wire.ID{2}, nil)
		return
	}
	f.called = append(f.called, c)
}

// step delivers the outcomes of what was submitted.
func (f *fakeCore) step() {
	called := f.called
	f.called = nil
	for _, c := range called {
		f.applied++
		c.Deliver(wire.Ticket{}, &wire.Reply{Code: wire.Code_OK}, false)
	}
}

func handlers() Handlers {
	return Handlers{
		Registered: func(core.Machine, wire.ID) bool { return true },
		SessionOf:  func(core.Machine, wire.ID) (wire.ID, bool) { return wire.ID{}, false },
		Occupied:   func(core.Machine, wire.ID) bool { return true },
		Free:       func(core.Machine) int { return 1 },
		Serve:      func(ctx context.Context, _ *wire.Request, _ Answer) error { <-ctx.Done(); return ctx.Err() },
		Failure:    func(error) (wire.Failure, string) { return wire.Failure_FAILURE_OTHER, "" },
	}
}

// serving returns a member that accepts clients.
func serving(t *testing.T, change func(*member, *Handlers)) *member {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &member{
		fake: &fakeCore{applied: 1}, queue: make(chan func(*core.Core), 256), addr: l.Addr().String(),
		members: []string{l.Addr().String()}, stopped: make(chan struct{}),
	}
	h := handlers()
	if change != nil {
		change(m, &h)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.Server = New(Config{
		Handlers: h, Core: m.fake, Lifetime: ctx, Stopped: func() error { return errors.New("the member has stopped") },
		Queue: m.queue, Logger: quiet, Renew: func([]wire.ID) []byte { return []byte{1} },
		Addresses: func() []string { return m.members }, Attached: new(atomic.Int64),
		Spend: func(work func()) { work() }, IsSpent: func() bool { return false },
	})
	_, key, _ := ed25519.GenerateKey(nil) // never fails
	port, err := transport.New(transport.Config{
		Identity: transport.Identity{
			Group: "test", Cluster: wire.ID{1}, Member: wire.FingerprintOf(key.Public().(ed25519.PublicKey)), Incarnation: wire.ID{2},
			Boot: 1, Name: "member", Advertise: m.addr, FeatureLevel: wire.FeatureLevel,
		},
		Key: key, Listener: l, Handler: struct{ transport.Handler }{}, Logger: quiet, Client: m.Serve,
	})
	if err != nil {
		t.Fatal(err)
	}
	port.Start()
	go m.loop(ctx)
	t.Cleanup(func() {
		stop()
		_ = port.Close()
		<-m.stopped
	})
	return m
}

// loop is the loop of a member, as far as clients are concerned.
func (m *member) loop(ctx context.Context) {
	defer close(m.stopped)
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if m.ticked != nil {
				m.ticked()
			}
			m.Tick()
		case run := <-m.queue:
			run(nil)
		case <-ctx.Done():
			return
		}
		m.fake.step()
		m.Deliver()
	}
}

// on runs f on the loop's goroutine.
func (m *member) on(f func()) {
	done := make(chan struct{})
	m.queue <- func(*core.Core) { f(); close(done) }
	<-done
}

// await waits until the loop finds the condition true.
func (m *member) await(t *testing.T, condition func() bool) {
	t.Helper()
	for range 6_000 {
		met := false
		if m.on(func() { met = condition() }); met {
			return
		}
		pass(10 * time.Millisecond)
	}
	t.Fatal("not so after a minute")
}

// connect is dial with an Attach.
func (m *member) connect(t *testing.T) *transport.ClientConn {
	t.Helper()
	c := m.dial(t)
	c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{}}}, 0)
	return c
}

// dial connects a client with a key of its own.
func (m *member) dial(t *testing.T) *transport.ClientConn {
	t.Helper()
	d, err := transport.NewDialer(transport.DialerConfig{Group: "test", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	_, key, _ := ed25519.GenerateKey(nil) // never fails
	c, err := d.Connect(t.Context(), transport.Target{Addr: m.addr}, key, wire.ID{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pass lets other goroutines run while the loop is busy.
func pass(d time.Duration) { <-time.After(d) } // the subject is a loop that is busy for some time

// number makes the incarnation of a client.
func number(n uint64) wire.ID { return wire.ID(binary.BigEndian.AppendUint64(make([]byte, 8), n)) }
