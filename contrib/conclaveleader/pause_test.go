package conclaveleader_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclaveleader"
)

// pausing is a Lock whose process is paused in a renewal.
type pausing struct {
	*conclaveleader.Lock
	paused, resume chan struct{}
}

func (p *pausing) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	select {
	case <-p.paused:
		return p.Lock.Update(ctx, r)
	default:
	}
	close(p.paused)
	<-p.resume
	return errors.New("paused")
}

// client-go attempts the release of ReleaseOnCancel also where another candidate has taken over
// since its last look: it reads the record, and does not look at the holder.
func TestUpdate_ReleaseAfterTakeover(t *testing.T) {
	group := conclavetest.Start(t, 1)
	ctx := t.Context()
	p := &pausing{candidate(group.Node(0), "a"), make(chan struct{}), make(chan struct{})}
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: p, LeaseDuration: time.Second, RenewDeadline: time.Second / 2, RetryPeriod: time.Second / 10, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Run(ctx)
	}()
	<-p.paused

	b := candidate(group.Node(0), "b")
	_, _, err = b.Get(ctx)
	must(t, err)
	time.Sleep(2*time.Second + time.Second/2) // the time of the pause is what is tested: more than two leases
	must(t, b.Update(ctx, record("b", 1)))
	first := fenceOf(t, b)
	close(p.resume)
	<-ended

	read, _, err := b.Get(ctx)
	must(t, err)
	if read.HolderIdentity != "b" {
		t.Errorf("the holder is %q, want b", read.HolderIdentity)
	}
	if f := fenceOf(t, b); f != first {
		t.Errorf("fence %v, want %v", f, first)
	}
}
