package grouptest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// This file is the only one that uses a member beyond the public API.

// Member returns the member behind a node, of its latest start.
func (g *Group) Member(i int) *cluster.Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members[i]
}

// Boot returns the number of a member's latest start.
func (g *Group) Boot(i int) uint64 { return g.Member(i).Status().Boot }

// ProcessName returns the name of a member's process in memberlist's messages.
func (g *Group) ProcessName(i int) string { return fmt.Sprintf("%v.%d", g.ID(i), g.Boot(i)) }

// Installed returns how many snapshots a member has installed since its start.
func (g *Group) Installed(i int) uint64 { return g.Member(i).Status().Installed }

// WantInstalled checks that a member has installed at least n snapshots since its start.
func (g *Group) WantInstalled(i int, n uint64) {
	g.T.Helper()
	if got := g.Installed(i); got < n {
		g.T.Fatalf("member %d has installed %d snapshots; want %d", i, got, n)
	}
}

// Deregister removes the registration of a member's process, as if it had expired,
// without notifying the process.
func (g *Group) Deregister(i int) error {
	g.T.Helper()
	err := g.exec(i, &wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}}, wire.Code_OK, wire.Code_UNKNOWN_INCARNATION)
	if errors.Is(err, tickets.ErrUnregistered) {
		return nil // already
	}
	return err
}

// CloseSessionAsOwner sends the graceful close of a session in the name of a
// member's process, and returns the refusal.
func (g *Group) CloseSessionAsOwner(i int, id conclave.SessionID) error {
	g.T.Helper()
	return g.exec(i, &wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: id[:], Graceful: true}}}, wire.Code_OK)
}

// RequestRemoval is the first part of Leave: it commits the command that removes a
// member. The member may learn of its removal, and stop, before it gets the outcome.
func (g *Group) RequestRemoval(i int) {
	g.T.Helper()
	m := g.Member(i)
	if err := m.Removals().RequestRemoval(Bounded(g.T)); err != nil && !errors.Is(err, cluster.ErrRemoved) {
		g.T.Fatal(err)
	}
}

// AwaitLeaveRefused blocks until a member is refused to leave because the other voters
// have no quorum: nothing signals that a connection has broken.
func (g *Group) AwaitLeaveRefused(i int) {
	m := g.Member(i)
	if !g.poll(g.patience, func() bool { return m.Removals().CheckLeave() != nil }) {
		g.T.Fatalf("member %d may still leave", i)
	}
}

// AnnounceShutdown is the part of a graceful shutdown that reaches the failure detector.
func (g *Group) AnnounceShutdown(i int) { g.Member(i).AnnounceShutdown() }

// ReadOnLoop runs f on a member's loop, which does nothing else meanwhile.
func (g *Group) ReadOnLoop(i int, f func()) error {
	return g.Member(i).Replica().Read(g.T.Context(), func(cluster.Machine) { f() })
}

// exec submits a command and waits for its outcome, which must have one of the accepted
// codes.
func (g *Group) exec(i int, command *wire.Command, accepted ...wire.Code) error {
	g.T.Helper()
	data, err := proto.Marshal(command)
	if err != nil {
		g.T.Fatal(err)
	}
	c := &call{answered: make(chan answer, 1)}
	g.Member(i).Replica().Submit(len(data), func() []byte { return data }, c, true)
	select {
	case a := <-c.answered:
		if a.err != nil {
			return a.err
		}
		for _, code := range accepted {
			if a.reply.GetCode() == code {
				return nil
			}
		}
		return errors.New(a.reply.String())
	case <-Bounded(g.T).Done():
		return errors.New("no outcome within a minute")
	}
}

// FillClients registers as many clients, for that TTL, as the group of that number may still have, by way of its leader; 0: the
// default group.
func (g *Group) FillClients(leader int, number uint32, ttl time.Duration) {
	g.T.Helper()
	to := g.Member(leader).Replica()
	if number != 0 {
		var err error
		to, err = g.Member(leader).Groups().Replica(Within(g.T, time.Minute), number)
		Must(g.T, err)
	}
	for {
		var free int
		var now int64
		Must(g.T, to.Read(Bounded(g.T), func(m cluster.Machine) {
			free, now = m.(*machine.Machine).FreeClients(), m.(*machine.Machine).Now()
		}))
		if free == 0 {
			return
		}
		batch := make([]*wire.Submission, min(free, 2000))
		for i := range batch {
			batch[i] = registerStranger(ttl, now)
		}
		to.Post(func(c *core.Core) {
			for _, s := range batch {
				c.SubmitForClient(s)
			}
		})
	}
}

// registerStranger returns what registers a client that is not there.
func registerStranger(ttl time.Duration, now int64) *wire.Submission {
	key := make([]byte, 32)
	rand.Read(key)
	incarnation := wire.ClientIncarnation(key)
	command, err := proto.Marshal(&wire.Command{Op: &wire.Command_RegisterClient{RegisterClient: &wire.RegisterClient{
		Key: key, Ttl: int64(ttl), Until: now + int64(time.Minute),
	}}})
	if err != nil {
		panic(err) // of a message without strings
	}
	return &wire.Submission{
		Incarnation: incarnation[:], Member: wire.FingerprintOf(key), Client: true, Urgent: true, Calls: []*wire.Call{{Seq: 1, Command: command}},
	}
}

type answer struct {
	reply *wire.Reply
	err   error
}

// call awaits the one outcome of a command.
type call struct{ answered chan answer }

func (c *call) Deliver(_ wire.Ticket, r *wire.Reply, _ bool)    { c.answered <- answer{reply: r} }
func (c *call) Fail(err error)                                  { c.answered <- answer{err: err} }
func (c *call) Cancelled(bool)                                  {}
func (c *call) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }

// LoseOutcomes makes a member not deliver outcomes to its calls while lose returns
// true. It runs on the member's loop.
func LoseOutcomes(s *cluster.Seams, lose func() bool) {
	s.Effects = func(e *cluster.Effects) {
		if lose() {
			e.Notifications = slices.DeleteFunc(e.Notifications, func(n cluster.Notification) bool { return n.Call != nil })
		}
	}
}

// LoseAppends makes a member not send entries while lose returns true. Heartbeats go on, so a
// leader still leads. It runs on the member's loop.
func LoseAppends(s *cluster.Seams, lose func() bool) {
	s.Effects = func(e *cluster.Effects) {
		if lose() {
			e.Messages = slices.DeleteFunc(e.Messages, func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp })
		}
	}
}

// FaultyNetwork loses every tenth forwarded submission, and repeats others.
func FaultyNetwork(g *Group) {
	Edit(func(_ int, c *conclave.Config, s *cluster.Seams) {
		c.HeartbeatInterval = 10 * time.Millisecond // a lost command is forwarded again after 3
		FaultyForwards(s, 10)
	})(g)
}

// Kill ends a node without a graceful shutdown.
func Kill(n *conclave.Node) { n.Close(cluster.WithCrash(context.Background())) }

// Alone opens a group of one in memory, which is killed when the test ends.
func Alone(t testing.TB) *conclave.Node {
	t.Helper()
	n, err := conclave.Open(Bounded(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Kill(n) })
	return n
}

// FlipBit flips a bit in the memory of a member's machine: in its counter of fences.
func (g *Group) FlipBit(i int) {
	g.T.Helper()
	err := g.Member(i).Replica().ReadStale(g.T.Context(), func(m cluster.Machine) {
		counter := reflect.ValueOf(m).Elem().FieldByName("fences")
		*(*uint64)(counter.Addr().UnsafePointer()) ^= 1 << 20
	})
	if err != nil {
		g.T.Fatal(err)
	}
}
