package grouptest

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// closing is a tracer that closes its node or client.
type closing struct {
	close func()
}

func (c closing) Begin(_ context.Context, op conclave.Operation) conclave.Span {
	if op.Name == "begin" {
		c.close()
	}
	return closingSpan{c, op.Name}
}

type closingSpan struct {
	of   closing
	name string
}

func (s closingSpan) Carrier() []byte          { return nil }
func (s closingSpan) Event(conclave.SpanEvent) { s.at("event") }
func (s closingSpan) End(error)                { s.at("end") }

func (s closingSpan) at(method string) {
	if s.name == method {
		s.of.close()
	}
}

// closer is what a node and a client have in common for this test.
type closer interface {
	Access
	Backup(ctx context.Context, w io.Writer) error
}

// closers are the functions of the application, by name: each makes a call in which closes is called.
func closers(a closer, closes func()) map[string]func(ctx context.Context) {
	return map[string]func(ctx context.Context){
		"Backup's writer": func(ctx context.Context) {
			_ = a.Backup(ctx, writerFunc(func(p []byte) (int, error) { closes(); return len(p), nil }))
		},
		"Watch": func(ctx context.Context) {
			for range a.KV().Watch(ctx, "", 0) {
				closes()
			}
		},
		"Observe": func(ctx context.Context) {
			for range a.Election("e").Observe(ctx) {
				closes()
			}
		},
		"Locks": func(ctx context.Context) {
			for range a.Locks(ctx, "") {
				closes()
			}
		},
		"Do": func(ctx context.Context) {
			_ = a.FencedLock("do").Do(ctx, func(context.Context, conclave.Fence) error { closes(); return nil })
		},
		"lingering Do": func(ctx context.Context) {
			_ = a.FencedLock("do", conclave.Linger(time.Minute)).Do(ctx, func(context.Context, conclave.Fence) error { closes(); return nil })
		},
		"Semaphore.Do": func(ctx context.Context) {
			_ = a.Semaphore("s", 1).Do(ctx, 1, func(context.Context, conclave.Fence) error { closes(); return nil })
		},
		"Run": func(ctx context.Context) {
			_ = a.Election("run").Run(ctx, nil, func(context.Context, conclave.Fence) error { closes(); return nil })
		},
		"Tracer.Begin": func(ctx context.Context) { _, _ = a.FencedLock("begin").Lock(ctx) },
		"Span.Event":   func(ctx context.Context) { _, _ = a.FencedLock("event").Lock(ctx) },
		"Span.End":     func(ctx context.Context) { _, _ = a.FencedLock("end").Lock(ctx) },
		"Events": func(ctx context.Context) {
			if s, err := a.NewSession(ctx, Lasting()); err == nil {
				_ = s.Close(ctx)
			}
		},
	}
}

// Close returns when a function of the application calls it, wherever that is.
func TestClose_CalledByTheApplication(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Backup's writer", "Watch", "Observe", "Locks", "Do", "lingering Do", "Semaphore.Do", "Run", "Tracer.Begin", "Span.Event", "Span.End", "Events",
	} {
		for _, kind := range []string{"node", "client"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				closesWithin(t, name, kind)
			})
		}
	}
}

func closesWithin(t *testing.T, name, kind string) {
	var a closer
	closed := make(chan struct{}, 1)
	closes := func() {
		_ = a.Close(Within(t, 2*time.Second))
		select {
		case closed <- struct{}{}:
		default:
		}
	}
	app := closing{closes}
	var events *conclave.Events
	if name == "Events" {
		events = &conclave.Events{SessionEnded: func(conclave.SessionID, error) { closes() }}
	}
	n, err := conclave.Open(Bounded(t), &conclave.Config{Tracer: app, Events: events})
	Must(t, err)
	t.Cleanup(func() { Kill(n) })
	a = n
	if kind == "client" {
		a, err = conclave.Dial(Bounded(t), &conclave.ClientConfig{Addresses: []string{n.Addr()}, Tracer: app, Events: events})
		Must(t, err)
	}
	MustPut(t, a.KV(), "k", "v")
	MustLock(t, a.FencedLock("held"))
	ended := make(chan struct{})
	go func() { defer close(ended); closers(a, closes)[name](Bounded(t)) }()
	for _, c := range []<-chan struct{}{closed, ended} {
		select {
		case <-c:
		case <-time.After(patience):
			t.Fatal("Close, or the call that it was called in, does not return")
		}
	}
}
