package grouptest

import (
	"context"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
)

// A panic on the member's loop stops the node and ends every pending call, also those
// that were queued behind it.
func TestNode_PanicOnLoop(t *testing.T) {
	t.Parallel()
	g := Start(t, 1)
	n := g.Nodes[0]
	stuck, block := make(chan struct{}), make(chan struct{})
	go g.ReadOnLoop(0, func() {
		close(stuck)
		<-block
		panic("planted")
	})
	<-stuck
	var waiting sync.WaitGroup
	errs := make(chan error, 40)
	for i := range cap(errs) {
		waiting.Go(func() {
			switch i % 4 {
			case 0:
				errs <- n.CloseSession(context.Background(), conclave.SessionID{1})
			case 1:
				_, err := n.FencedLock("x").Lock(context.Background())
				errs <- err
			case 2:
				_, err := Collect(n.Locks(context.Background(), ""))
				errs <- err
			case 3:
				errs <- n.TransferLeadership(context.Background(), 0)
			}
		})
	}
	close(block)
	<-n.Done()
	waiting.Wait()
	close(errs)
	for err := range errs {
		if err == nil {
			t.Error("a call succeeded on a stopped node")
		}
	}
	if n.Err() == nil {
		t.Error("Err does not return why the node has stopped")
	}
}

func TestTransferLeadership_NoSuchVoter(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	at := g.Leader()
	leader, dead := g.Nodes[at], (at+1)%3
	WantError(t, leader.TransferLeadership(context.Background(), 99), conclave.ErrInvalid)
	id := g.Nodes[dead].Status().ID
	g.Kill(dead)
	if err := leader.TransferLeadership(context.Background(), id); err != nil {
		WantError(t, err, conclave.ErrInvalid)
	}
}
