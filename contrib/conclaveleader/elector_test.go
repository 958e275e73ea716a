package conclaveleader_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclaveleader"
)

// A busy machine must not delay a renewal for renewDeadline, which ends the leadership, nor the end of a leadership for
// the rest of the lease, after which the next one starts.
const (
	lease         = 20 * time.Second
	renewDeadline = 10 * time.Second
)

// event is what an elector reports.
type event struct {
	identity string
	started  bool
	fence    conclave.Fence
}

// elector is one process with client-go's LeaderElector.
type elector struct {
	*leaderelection.LeaderElector
	lock  *conclaveleader.Lock
	stop  context.CancelFunc
	ended chan struct{} // closed when Run has returned
}

func elect(t *testing.T, group conclave.Access, identity string, events chan<- event) *elector {
	t.Helper()
	e := &elector{lock: candidate(group, identity), ended: make(chan struct{})}
	led := make(chan struct{}) // client-go reports the start in a goroutine, and the stop in every case
	var err error
	e.LeaderElector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, LeaseDuration: lease, RenewDeadline: renewDeadline, RetryPeriod: 500 * time.Millisecond,
		ReleaseOnCancel: true, Name: identity,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				f, err := e.lock.Fence()
				if err != nil {
					t.Errorf("%s leads without a fence: %v", identity, err)
				}
				events <- event{identity, true, f}
				close(led)
			},
			OnStoppedLeading: func() {
				select {
				case <-led:
					events <- event{identity, false, 0}
				default: // it has never led
				}
			},
		},
	})
	must(t, err)
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	go func() {
		defer close(e.ended)
		e.Run(ctx)
	}()
	t.Cleanup(func() { e.stop(); <-e.ended })
	return e
}

// next waits for the next event, and checks it.
func next(t *testing.T, events <-chan event, identity string, started bool) conclave.Fence {
	t.Helper()
	select {
	case e := <-events:
		if e.identity != identity || e.started != started {
			t.Fatalf("event %+v, want %s, started %v", e, identity, started)
		}
		return e.fence
	case <-time.After(3 * time.Minute):
		t.Fatalf("no event within three minutes, want %s, started %v", identity, started)
		return 0
	}
}

func TestElector_ReleaseOnCancel(t *testing.T) {
	group := conclavetest.Start(t, 3)
	events := make(chan event, 100)
	a := elect(t, group.Node(0), "a", events)
	first := next(t, events, "a", true)
	b := elect(t, group.Node(1), "b", events)

	a.stop()
	next(t, events, "a", false)
	<-a.ended
	if second := next(t, events, "b", true); second <= first {
		t.Errorf("fence %v after %v", second, first)
	}
	if _, err := a.lock.Fence(); !errors.Is(err, conclave.ErrNotHeld) {
		t.Errorf("Fence of the former leader: %v, want ErrNotHeld", err)
	}
	r, _, err := candidate(group.Node(2), "observer").Get(t.Context())
	must(t, err)
	if r.HolderIdentity != "b" || r.LeaderTransitions != 1 || !b.IsLeader() {
		t.Errorf("record %+v", r)
	}
}

// The former leader stops before the next one starts, without hearing from the group.
func TestElector_LeaderPartitioned(t *testing.T) {
	t.Parallel() // it waits for a lease
	group := conclavetest.Start(t, 3)
	events := make(chan event, 100)
	a := elect(t, group.Node(0), "a", events)
	first := next(t, events, "a", true)
	elect(t, group.Node(1), "b", events)

	group.Partition([]int{0})
	next(t, events, "a", false)
	second := next(t, events, "b", true)
	if second <= first {
		t.Errorf("fence %v after %v", second, first)
	}
	if _, err := a.lock.Fence(); err == nil {
		t.Error("the former leader has a fence while another one leads")
	}
	var guard conclave.Guard
	must(t, guard.Check("resource", second))
	if err := guard.Check("resource", first); !errors.Is(err, conclave.ErrStaleFence) {
		t.Errorf("the resource accepts the former leader: %v", err)
	}
	group.Heal()
}

func TestElector_LeaderKilled(t *testing.T) {
	t.Parallel() // it waits for a lease
	group := conclavetest.Start(t, 3)
	events := make(chan event, 100)
	elect(t, group.Node(0), "a", events)
	first := next(t, events, "a", true)
	elect(t, group.Node(1), "b", events)
	group.Kill(0)
	next(t, events, "a", false)
	if second := next(t, events, "b", true); second <= first {
		t.Errorf("fence %v after %v", second, first)
	}
}

// Renewals go on: the leader keeps its leadership for longer than the LeaseDuration, with one fence.
func TestElector_Renews(t *testing.T) {
	t.Parallel() // it waits for a lease
	group := conclavetest.Start(t, 3)
	events := make(chan event, 100)
	a := elect(t, group.Node(0), "a", events)
	first := next(t, events, "a", true)
	elect(t, group.Node(1), "b", events)
	began := time.Now()
	index, err := group.Node(2).KV().Index(t.Context())
	must(t, err)
	for e, err := range group.Node(2).KV().Watch(t.Context(), "leaderelection/", index) {
		must(t, err)
		if e.Deleted {
			t.Fatal("the record was deleted")
		}
		if time.Since(began) > lease+lease/10 {
			break
		}
	}
	if f := fenceOf(t, a.lock); f != first || len(events) != 0 {
		t.Errorf("fence %v, want %v; %d events", f, first, len(events))
	}
}
