package conclave

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// A call whose context ends while the node stops is answered once, and returns.
func TestCallsLeftWhileTheNodeStops(t *testing.T) {
	n := alone(t)
	n.Close(t.Context())
	for range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := n.send(ctx, renewCommand(), func(answer) { cancel() }) // between its failure and its return
		if err == nil {
			t.Fatal("a closed node has renewed")
		}
	}
}

// A graceful close, after which no lock-delay follows, is for the process that has
// the session. One that was asked for before another process attached the session,
// and comes late, does not end it for that one.
func TestGracefulCloseIsForTheOwner(t *testing.T) {
	g := group(t, 3, nil)
	s := mustSession(t, g.nodes[0], &SessionConfig{TTL: NoTTL, LockDelay: 30 * time.Second, Checks: NoChecks})
	l := s.FencedLock("x")
	f := mustLock(t, l)
	reply, err := g.nodes[1].exec(within(t, 20*time.Second), closeCommand(s.id, true))
	if err != nil || reply.GetCode() != wire.Code_LOCKED {
		t.Fatal(reply, err)
	}
	if info, err := l.Info(within(t, 20*time.Second)); err != nil || info.Fence != f || s.Err() != nil {
		t.Errorf("%+v %v %v", info, err, s.Err())
	}
	must(t, g.nodes[1].CloseSession(within(t, 20*time.Second), s.ID())) // by force it is for anybody
	<-s.Done()
}

// A session that nobody here has seen is closed also when the group has forgotten
// this process meanwhile: without a TTL it would live for ever.
func TestDiscardedSessionIsClosed(t *testing.T) {
	n := alone(t)
	o := n.newOpening(SessionConfig{TTL: NoTTL})
	if _, err := n.exec(t.Context(), o.command()); err != nil {
		t.Fatal(err)
	}
	must(t, n.deregister(t.Context()))
	o.discard()
	for _, alive := mustInfo(t, n, SessionID(o.id)); alive; _, alive = mustInfo(t, n, SessionID(o.id)) {
		if t.Context().Err() != nil {
			t.Fatal("it lives")
		}
	}
}

// A waiter that Resize has sent away in entries that a snapshot has skipped is
// told so, and not that its session had ended.
func TestRecheckAfterResize(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, nil)
	must(t, n.Semaphore("s", 1).Resize(t.Context(), 2))
	a := newAcquisition(&Permit{name: "s"}, s)
	ticket := wire.Ticket{Incarnation: s.incarnation, Seq: 9}
	a.Deliver(ticket, &wire.Reply{Code: wire.Code_QUEUED}, true)
	var r *wire.Reply
	must(t, n.read(t.Context(), func(m *machine.Machine) { r = a.Recheck(m, ticket) }))
	a.Deliver(ticket, r, false)
	if got := <-a.result; !errors.Is(got.err, ErrLimitMismatch) {
		t.Error(got.err)
	}
}
