package replica

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// self is the member that a replica of a test belongs to.
const self = 1

// alone returns the configuration of the only voter's replica, in memory.
func alone() Config {
	return Config{
		Member: self, Incarnation: wire.ID{1}, Group: "test", Cluster: func() wire.ID { return wire.ID{2} },
		Heartbeat: 20 * time.Millisecond, Election: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), MaxCalls: 1000,
		Received:    new(ReceivedBytes),
		LoadMachine: func(state iter.Seq2[[]byte, []byte]) (Machine, error) { return machine.Load(state) },
		Commands:    machine.Commands{},
		Callbacks: Callbacks{
			Restored: func(Machine) {}, Changed: func([]fact.KeyChange, []fact.LeaderChange) {}, Ended: func(fact.Ended) {},
			LeaderChanged: func(uint64, uint64) {}, Woke: func() {},
		},
		Host: idle{},
	}
}

// rig is a replica with what its member would give it.
type rig struct {
	*Replica
	end      context.CancelCauseFunc
	routines sync.WaitGroup
	store    *storage.Store
	done     chan struct{}
	once     sync.Once
}

var errClosed = errors.New("closed")

func start(t *testing.T, cfg Config) *rig {
	t.Helper()
	return startWith(t, cfg, self)
}

// startWith is start with other voters, if there are any.
func startWith(t *testing.T, cfg Config, voters ...uint64) *rig {
	t.Helper()
	store, err := storage.Open(storage.Options{Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{store: store, done: make(chan struct{})}
	t.Cleanup(g.stop)
	if cfg.Log, err = raftlog.Open(store); err != nil {
		t.Fatal(err)
	}
	state := machine.FirstState(wire.FeatureLevel)
	if err := cfg.Log.BootstrapWith(&raftpb.ConfState{Voters: voters}, state, core.FirstDigest(state)); err != nil {
		t.Fatal(err)
	}
	cfg.Lifetime, g.end = context.WithCancelCause(context.Background())
	cfg.Done, cfg.DiskFailed, cfg.DiskError = g.done, store.Failed(), store.Err
	cfg.Fail = func(err error) { g.end(err) }
	cfg.Stopped = func() error { return errors.Join(ErrStopped, context.Cause(cfg.Lifetime)) }
	cfg.Routine = func(_ string, run func()) { g.routines.Go(run) }
	g.Replica = New(cfg)
	if _, err := g.Load(len(voters) == 1); err != nil {
		t.Fatal(err)
	}
	g.Start(idle{}, idle{})
	return g
}

// stop ends the replica as its member does.
func (g *rig) stop() {
	g.once.Do(func() {
		if g.Replica != nil {
			g.end(errClosed)
			g.routines.Wait()
			g.Abandon()
			g.Finish(true)
		}
		_ = g.store.Close()
		close(g.done)
	})
}

// idle is a host that ignores everything, no peers, and no clients.
type idle struct{}

func (idle) Ticked()                                {}
func (idle) Published(*Status)                      {}
func (idle) MembershipChanged(*raftpb.ConfState)    {}
func (idle) ListsChanged(uint64)                    {}
func (idle) SaveAcknowledged(uint64, core.Position) {}
func (idle) AttachDue()                             {}
func (idle) Deliver()                               {}
func (idle) Tick()                                  {}
func (idle) Resend()                                {}
func (idle) Restored()                              {}
func (idle) Send(uint64, *wire.Frame) (sent bool)   { return false }
func (idle) SendLater(uint64, *wire.Frame) bool     { return false }
func (idle) OpenSnapshot(context.Context, uint64, *wire.SnapshotHeader) (*transport.SnapshotWriter, error) {
	return nil, errors.New("there is no other member")
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

// wait blocks until the call ends, and returns why it failed.
func (c *trackedCall) wait() error {
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

var renewal = func() []byte {
	b, err := proto.Marshal(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}})
	if err != nil {
		panic(err)
	}
	return b
}()

func encoded(command []byte) func() []byte { return func() []byte { return command } }
