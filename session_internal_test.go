package conclave

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// A call whose context ends while the node stops gets one answer, and returns.
func TestCall_AbandonedWhileNodeStops(t *testing.T) {
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

// A discarded session is closed although the registration of this process has expired
// meanwhile: without a TTL it would never end.
func TestSession_DiscardedAfterRegistrationExpired(t *testing.T) {
	n := alone(t)
	o := n.newOpening(SessionConfig{TTL: NoTTL})
	if _, err := n.exec(t.Context(), o.command()); err != nil {
		t.Fatal(err)
	}
	must(t, n.deregister(t.Context()))
	o.discard()
	awaitEnded(t, n, SessionID(o.id))
}

// A snapshot skips the entries in which Resize refused a waiter. The waiter gets that
// refusal, and not the end of its session.
func TestSemaphore_ResizeSkippedBySnapshot(t *testing.T) {
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

// A session that was opened before a snapshot and is acknowledged after it may have
// ended in between. It is not used, and is closed.
func TestSession_OpeningOvertakenBySnapshot(t *testing.T) {
	n := alone(t)
	cfg, err := lasting().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	o := n.newOpening(cfg)
	reply, err := n.exec(t.Context(), o.command())
	if err != nil || reply.GetCode() != wire.Code_OK {
		t.Fatal(reply, err)
	}
	n.restores.Add(1)
	if s, err := o.answered(answer{reply: reply, incarnation: n.member.Status().Incarnation}); s != nil || !errors.Is(err, errOpenAgain) {
		t.Fatal(s, err)
	}
	awaitEnded(t, n, SessionID(o.id))
}

// The close of a session without a TTL succeeds although the registration of this
// process expires before the close arrives.
func TestSession_CloseAfterRegistrationExpired(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, lasting())
	s.end(fmt.Errorf("%w: %w", ErrSessionExpired, errClosedHere)) // the first half of Close
	must(t, n.deregister(t.Context()))
	must(t, s.Close(t.Context()))
	awaitEnded(t, n, s.ID())
}
