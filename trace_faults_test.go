package conclave_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// faultyTracer does something else at one of its methods.
type faultyTracer struct {
	at    string // the method
	fault func()
	id    string
	mu    sync.Mutex
	calls int // guarded by mu
}

func (f *faultyTracer) call(method string) {
	f.mu.Lock()
	f.calls++
	f.mu.Unlock()
	if method == f.at {
		f.fault()
	}
}

func (f *faultyTracer) Begin(context.Context, conclave.Operation) conclave.Span {
	f.call("Begin")
	if f.at == "no span" {
		return nil
	}
	return f
}

func (f *faultyTracer) Carrier() []byte          { f.call("Carrier"); return []byte(f.id) }
func (f *faultyTracer) Event(conclave.SpanEvent) { f.call("Event") }
func (f *faultyTracer) End(error)                { f.call("End") }

// tracedBy has node i traced by that tracer, and logged into log unless it is nil.
func tracedBy(i int, tracer conclave.Tracer, log *bytes.Buffer) grouptest.Option {
	return grouptest.Edit(func(j int, c *conclave.Config, _ *cluster.Seams) {
		if i == j {
			c.Tracer = tracer
			if log != nil {
				c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))
			}
		}
	})
}

// A tracer that panics fails no call. It is not called again, and that is logged once.
func TestTracer_Panics(t *testing.T) {
	for _, method := range []string{"Begin", "Carrier", "Event", "End"} {
		t.Run(method, func(t *testing.T) {
			log := new(bytes.Buffer)
			tracer := &faultyTracer{at: method, fault: func() { panic("a fault of the application") }}
			g := grouptest.Start(t, 1, tracedBy(0, tracer, log))
			l := g.Nodes[0].FencedLock("x")
			grouptest.MustLock(t, l)
			grouptest.MustUnlock(t, l)
			tracer.mu.Lock()
			after := tracer.calls
			tracer.mu.Unlock()
			grouptest.MustLock(t, l)
			grouptest.MustUnlock(t, l)
			if tracer.calls != after {
				t.Errorf("%d calls of the tracer after its panic", tracer.calls-after)
			}
			g.Close(0)
			if n := strings.Count(log.String(), "the tracer panicked"); n != 1 || !strings.Contains(log.String(), "a fault of the application") {
				t.Errorf("the panic is logged %d times: %s", n, log)
			}
		})
	}
}

// A tracer that blocks delays its own call only, also one that has got what it asked for.
func TestTracer_Blocks(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var blocked atomic.Bool
	tracer := &faultyTracer{at: "Event", fault: func() {
		if blocked.CompareAndSwap(false, true) {
			close(entered)
			<-leave
		}
	}}
	g := grouptest.Start(t, 3, tracedBy(0, tracer, nil))
	x := g.Nodes[0].FencedLock("x")
	done := make(chan error, 1)
	go func() {
		_, err := x.Lock(t.Context())
		done <- err
	}()
	<-entered
	if x.Holds() != 1 {
		t.Errorf("%d holds before Lock returns", x.Holds())
	}
	y := g.Nodes[0].FencedLock("y")
	grouptest.MustLock(t, y)
	grouptest.MustUnlock(t, y)
	select {
	case err := <-done:
		t.Errorf("Lock has returned before its tracer, with %v", err)
	default:
	}
	close(leave)
	grouptest.Must(t, <-done)
}

// What no span identifies, or too many bytes do, causes grants like any other release.
func TestTracer_NoIdentity(t *testing.T) {
	for name, releasing := range map[string]*faultyTracer{
		"no span":      {at: "no span", id: "never"},
		"no carrier":   {},
		"a long one":   {id: strings.Repeat("x", 65)},
		"the longest":  {id: strings.Repeat("x", 64)},
		"not of UTF-8": {id: "\xff\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			g, recorders := startTraced(t, 3, tracedBy(0, releasing, nil))
			l := g.Nodes[0].FencedLock("x")
			grouptest.MustLock(t, l)
			waiting := grouptest.StartLock(t, g.Nodes[1].FencedLock("x"))
			grouptest.MustUnlock(t, l)
			grouptest.Must(t, <-waiting.Err)
			want := releasing.id
			if releasing.at == "no span" || len(want) > 64 {
				want = ""
			}
			if s := recorders[1].last(t); len(s.events) != 2 || string(s.events[1].Cause) != want {
				t.Errorf("%+v, want the cause %q", s, want)
			}
		})
	}
}

// reusingTracer uses the bytes of its carriers again.
type reusingTracer struct{ carrier []byte }

func (r *reusingTracer) Begin(context.Context, conclave.Operation) conclave.Span {
	return &reusingTracer{[]byte("a release")}
}
func (r *reusingTracer) Carrier() []byte          { return r.carrier }
func (r *reusingTracer) Event(conclave.SpanEvent) {}
func (r *reusingTracer) End(error)                { clear(r.carrier) }

// The node keeps the identity of the last release while a lock lingers, and the bytes are the
// tracer's own.
func TestTracer_CarrierReused(t *testing.T) {
	g, recorders := startTraced(t, 3, tracedBy(0, new(reusingTracer), nil))
	l := g.Nodes[0].FencedLock("x", conclave.Linger(time.Hour))
	grouptest.MustLock(t, l)
	grouptest.MustUnlock(t, l)
	if info, err := l.Info(grouptest.Bounded(t)); err != nil || !info.Lingering {
		t.Fatalf("%+v, %v", info, err)
	}
	grouptest.MustLock(t, g.Nodes[1].FencedLock("x"))
	if s := recorders[1].last(t); len(s.events) != 2 || string(s.events[1].Cause) != "a release" {
		t.Errorf("%+v", s)
	}
}
