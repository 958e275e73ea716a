package conclave_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/conclave-go/conclave/internal/grouptest"
)

// A tracer that ends the goroutine, as a failed test does, leaves nothing acquired and nothing queued:
// no caller would release it.
func TestTracer_EndsGoroutine(t *testing.T) {
	for _, method := range []string{"Begin", "Event", "End"} {
		t.Run(method, func(t *testing.T) {
			var armed atomic.Bool
			tracer := &faultyTracer{at: method, fault: func() {
				if armed.CompareAndSwap(true, false) {
					runtime.Goexit()
				}
			}}
			g := grouptest.Start(t, 2, tracedBy(0, tracer, nil))
			for _, of := range nouns() {
				t.Run(of.name, func(t *testing.T) {
					ctx := grouptest.Bounded(t)
					abandoned := func() {
						armed.Store(true)
						var all sync.WaitGroup
						all.Go(func() { _, _ = of.hold(ctx, g.Nodes[0]) })
						all.Wait()
						armed.Store(false)
					}
					abandoned() // granted at once
					release, err := of.hold(ctx, g.Nodes[1])
					grouptest.Must(t, err)
					if method == "Event" {
						abandoned() // while it is queued
					}
					grouptest.Must(t, release(context.WithoutCancel(ctx)))
					release, err = of.hold(ctx, g.Nodes[1])
					grouptest.Must(t, err)
					grouptest.Must(t, release(ctx))
				})
			}
		})
	}
}

// What Downgrade has turned was held before the call, so its release is still owed: the goroutine's
// end releases nothing, and with Do one hold.
func TestTracer_EndsGoroutineInDowngrade(t *testing.T) {
	for _, method := range []string{"Event", "End"} {
		t.Run(method, func(t *testing.T) {
			var armed atomic.Bool
			tracer := &faultyTracer{at: method, fault: func() {
				if armed.CompareAndSwap(true, false) {
					runtime.Goexit()
				}
			}}
			g := grouptest.Start(t, 1, tracedBy(0, tracer, nil))
			ctx, l := grouptest.Bounded(t), g.Nodes[0].RWLock("x")
			_, err := l.Lock(ctx)
			grouptest.Must(t, err)
			armed.Store(true)
			var all sync.WaitGroup
			all.Go(func() { _, _ = l.Downgrade(ctx) })
			all.Wait()
			armed.Store(false)
			if n := l.Holds(); n != 1 {
				t.Fatalf("%d holds after Downgrade", n)
			}
			grouptest.Must(t, l.RUnlock(ctx))
			_, err = l.Lock(ctx)
			grouptest.Must(t, err)
			grouptest.Must(t, l.Unlock(ctx))
		})
	}
}
