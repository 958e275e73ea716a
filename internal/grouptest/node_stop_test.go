package grouptest

import (
	"context"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
)

// How a node ends while its callers are at it. Nobody may be left waiting.

// A panic in the loop, of raft or of anybody, stops the node and answers every
// call that waits, those included that stood behind the panic.
func TestPanicInTheLoopAnswersEverybody(t *testing.T) {
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
			t.Error("a call succeeds in a node that has stopped")
		}
	}
	if n.Err() == nil {
		t.Error("nobody says why the node has stopped")
	}
}

func TestTransferToNobody(t *testing.T) {
	g := Start(t, 3)
	leader := g.Nodes[g.Leader()]
	WantError(t, leader.TransferLeadership(context.Background(), 99), conclave.ErrInvalid)
	dead := (g.Leader() + 1) % 3
	id := g.Nodes[dead].Status().ID
	g.Kill(dead)
	if err := leader.TransferLeadership(context.Background(), id); err != nil {
		WantError(t, err, conclave.ErrInvalid)
	}
}
