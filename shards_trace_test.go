package conclave_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Joins and releases are measured and traced.
func TestShards_CallsMeasured(t *testing.T) {
	tracer := &recorder{name: "a", queued: make(chan conclave.SpanEvent, 10)}
	n := grouptest.Start(t, 1, tracedBy(0, tracer, nil)).Nodes[0]
	s := n.Shards("orders", 2)
	w := runShards(t, s)
	next(t, w.began, 2)
	if held := n.Metrics().Held; held != 2 {
		t.Errorf("%d holds, want 2", held)
	}
	w.stop()
	grouptest.WantError(t, n.Shards("orders", 2).Run(grouptest.Expired(), nil), context.Canceled)
	if held := n.Metrics().Held; held != 0 {
		t.Errorf("%d holds are left", held)
	}
	for _, c := range n.Metrics().Calls {
		switch c.Kind {
		case conclave.CallJoinShards:
			if c.Results[conclave.ResultOK] != 1 || c.Results[conclave.ResultCanceled] != 1 {
				t.Errorf("joins %v", c.Results)
			}
		case conclave.CallReleaseShards:
			if ok := c.Results[conclave.ResultOK]; ok < 1 || ok > 2 || c.Seconds.Count() != ok {
				t.Errorf("releases %v", c.Results)
			}
		}
	}
	tracer.mu.Lock()
	defer tracer.mu.Unlock()
	first, second := tracer.spans[0], tracer.spans[1]
	if first.op.Kind != conclave.CallJoinShards || first.op.Op != "join shards" || first.op.Name != "orders" || first.ends != 1 || first.err != nil ||
		len(first.events) != 1 || first.events[0].Kind != conclave.SpanGranted {
		t.Errorf("%+v", first)
	}
	if second.op.Kind != conclave.CallReleaseShards || second.op.Name != "orders" || second.ends != 1 || second.err != nil {
		t.Errorf("%+v", second)
	}
}

// A tracer that ends the goroutine leaves no worker that nothing works for, and releases are made nevertheless.
func TestShards_TracerEndsGoroutine(t *testing.T) {
	for _, method := range []string{"Begin", "Event", "End"} {
		t.Run(method, func(t *testing.T) {
			var armed atomic.Bool
			tracer := &faultyTracer{at: method, fault: func() {
				if armed.CompareAndSwap(true, false) {
					runtime.Goexit()
				}
			}}
			s := grouptest.Start(t, 1, tracedBy(0, tracer, nil)).Nodes[0].Shards("orders", 3)
			armed.Store(true)
			var ended sync.WaitGroup
			ended.Go(func() {
				_ = s.Run(t.Context(), func(context.Context, int, conclave.Fence) error { return nil })
				t.Error("Run has returned")
			})
			ended.Wait()
			grouptest.AwaitShards(t, s, func(i conclave.ShardsInfo) bool { return i.Count == 0 })
			w := runShards(t, s)
			next(t, w.began, 3)
			armed.Store(true)
			w.stop()
			wantGivenAway(t, s)
		})
	}
}
