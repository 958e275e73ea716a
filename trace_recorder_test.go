package conclave_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// recorder is a Tracer that keeps what it sees.
type recorder struct {
	name   string
	queued chan conclave.SpanEvent // gets each SpanQueued
	mu     sync.Mutex
	spans  []*recorded // guarded by mu
}

type recorded struct {
	by      *recorder
	op      conclave.Operation
	carrier string
	// Guarded by the recorder's mu.
	events []conclave.SpanEvent
	ends   int
	err    error
}

func (r *recorder) Begin(_ context.Context, op conclave.Operation) conclave.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &recorded{by: r, op: op, carrier: fmt.Sprintf("%s.%d", r.name, len(r.spans))}
	r.spans = append(r.spans, s)
	return s
}

func (s *recorded) Carrier() []byte { return []byte(s.carrier) }

func (s *recorded) Event(e conclave.SpanEvent) {
	s.by.mu.Lock()
	defer s.by.mu.Unlock()
	s.events = append(s.events, e)
	if e.Kind == conclave.SpanQueued {
		s.by.queued <- e
	}
}

func (s *recorded) End(err error) {
	s.by.mu.Lock()
	defer s.by.mu.Unlock()
	s.err = err
	s.ends++
}

// last returns the span that began last.
func (r *recorder) last(t *testing.T) recorded {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spans) == 0 {
		t.Fatal("there is no span")
	}
	s := *r.spans[len(r.spans)-1]
	s.events = slices.Clone(s.events)
	return s
}

// of returns the span with that carrier.
func (r *recorder) of(carrier string) (s recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.carrier == carrier {
			return *s
		}
	}
	return s
}

// startTraced starts a group at the level of traces, each node with a recorder.
func startTraced(t *testing.T, n int, opts ...grouptest.Option) (*grouptest.Group, []*recorder) {
	t.Helper()
	recorders := make([]*recorder, n)
	opts = append(opts, grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) {
		recorders[i] = &recorder{name: fmt.Sprint("node-", i), queued: make(chan conclave.SpanEvent, 16)}
		if c.Tracer == nil {
			c.Tracer = recorders[i]
		}
	}))
	g := grouptest.Start(t, n, opts...)
	g.AwaitLevel(wire.LevelTrace)
	return g, recorders
}
