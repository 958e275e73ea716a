package conclaveotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclaveotel"
)

// start starts a group in which each node has a provider of its own, as if it were in a process
// of its own, and returns what each has recorded.
func start(t *testing.T, n int) (*conclavetest.Group, []*tracetest.SpanRecorder) {
	t.Helper()
	recorders := make([]*tracetest.SpanRecorder, n)
	group := conclavetest.Start(t, n, conclavetest.Configure(func(i int, cfg *conclave.Config) {
		recorders[i] = tracetest.NewSpanRecorder()
		cfg.Tracer = conclaveotel.NewTracer(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorders[i])))
	}))
	return group, recorders
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// last returns the last span of that name that has ended.
func last(t *testing.T, r *tracetest.SpanRecorder, name string) sdk.ReadOnlySpan {
	t.Helper()
	for _, s := range slices.Backward(r.Ended()) {
		if s.Name() == name {
			return s
		}
	}
	t.Fatalf("no span %s", name)
	return nil
}

// contend has one node hold the lock while another one waits for it.
func contend(t *testing.T, holder, waiter *conclave.Node) {
	t.Helper()
	ctx := t.Context()
	held, wanted := holder.FencedLock("invoices"), waiter.FencedLock("invoices")
	_, err := held.Lock(ctx)
	must(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := wanted.Lock(ctx)
		done <- err
	}()
	for waiters := 0; waiters == 0; {
		info, err := held.Info(ctx)
		must(t, err)
		waiters = info.Waiters
	}
	must(t, held.Unlock(ctx))
	must(t, <-done)
	must(t, wanted.Unlock(ctx))
}

// attributes are those of a span, an event or a link, in their order.
func attributes(all []attribute.KeyValue) (text []string) {
	for _, a := range all {
		text = append(text, fmt.Sprintf("%s=%s", a.Key, a.Value.String()))
	}
	return text
}

func want(t *testing.T, what string, got []attribute.KeyValue, want ...string) {
	t.Helper()
	if !slices.Equal(attributes(got), want) {
		t.Errorf("%s: %q, want %q", what, attributes(got), want)
	}
}

// The span of a waiter shows where it was queued and that it was granted, and links to the span
// of the Unlock on another node, in another trace.
func TestTracer_ContendedLock(t *testing.T) {
	group, recorders := start(t, 3)
	holder, waiter := group.Node(0), group.Node(1)
	contend(t, holder, waiter)
	for len(last(t, recorders[1], "conclave.lock").Links()) == 0 { // until the group has raised its feature level
		contend(t, holder, waiter)
	}
	held, released, waited := last(t, recorders[0], "conclave.lock"), last(t, recorders[0], "conclave.unlock"), last(t, recorders[1], "conclave.lock")
	if waited.SpanKind() != trace.SpanKindClient || waited.Status().Code != codes.Unset || waited.InstrumentationScope().Name != conclaveotel.Scope {
		t.Errorf("kind %v, status %v, scope %v", waited.SpanKind(), waited.Status(), waited.InstrumentationScope())
	}
	link := waited.Links()[0]
	if !link.SpanContext.Equal(released.SpanContext().WithRemote(true)) || len(waited.Links()) != 1 {
		t.Errorf("links %+v, want one to %+v", waited.Links(), released.SpanContext())
	}
	want(t, "link", link.Attributes, "conclave.link=released_by")
	fence := func(s sdk.ReadOnlySpan) string { return s.Attributes()[2].Value.AsString() }
	want(t, "held", held.Attributes(), "conclave.node.id="+holder.Status().ID.String(), "conclave.lock.name=invoices", "conclave.fence="+fence(held))
	want(t, "released", released.Attributes(), "conclave.node.id="+holder.Status().ID.String(), "conclave.lock.name=invoices", "conclave.fence="+fence(held))
	events := waited.Events()
	if len(events) != 2 || events[0].Name != "queued" || events[1].Name != "granted" || events[1].Time.Before(events[0].Time) {
		t.Fatalf("events %+v", events)
	}
	session := attributes(events[0].Attributes)[1]
	want(t, "queued", events[0].Attributes, "conclave.queue.position=1", session, "conclave.holder.node.id="+holder.Status().ID.String(), "conclave.holder.fence="+fence(held))
	want(t, "granted", events[1].Attributes, "conclave.fence="+fence(waited))
	if len(held.Links()) != 0 || held.Events()[0].Name != "granted" {
		t.Errorf("granted at once, with the links %v and the events %v", held.Links(), held.Events())
	}
}

// A call on a further group has the group's name.
func TestTracer_FurtherGroup(t *testing.T) {
	group, recorders := start(t, 1)
	ctx, id := t.Context(), group.Node(0).Status().ID.String()
	tenant, err := group.Node(0).CreateGroup(ctx, "tenant-7", conclave.GroupConfig{})
	must(t, err)
	_, err = tenant.KV().Put(ctx, "k", nil)
	must(t, err)
	want(t, "further group", last(t, recorders[0], "conclave.put").Attributes(),
		"conclave.node.id="+id, "conclave.group.name=tenant-7", "conclave.key=k", "conclave.txn.operations=1")
	_, err = group.Node(0).KV().Put(ctx, "k", nil)
	must(t, err)
	want(t, "default group", last(t, recorders[0], "conclave.put").Attributes(), "conclave.node.id="+id, "conclave.key=k", "conclave.txn.operations=1")
}

// A call is a child of the span in its context.
func TestTracer_Parent(t *testing.T) {
	group, recorders := start(t, 1)
	ctx, parent := sdk.NewTracerProvider().Tracer("program").Start(t.Context(), "invoice run")
	must(t, group.Node(0).FencedLock("invoices").Do(ctx, func(context.Context, conclave.Fence) error { return nil }))
	for _, name := range []string{"conclave.lock", "conclave.unlock"} {
		if s := last(t, recorders[0], name); s.Parent().SpanID() != parent.SpanContext().SpanID() {
			t.Errorf("the parent of %s is %v", name, s.Parent())
		}
	}
}

// A failure is the span's status, with a class; what a caller had to expect is none.
func TestTracer_Errors(t *testing.T) {
	group, recorders := start(t, 1)
	n, ctx := group.Node(0), t.Context()
	held := n.FencedLock("x")
	_, err := held.Lock(ctx)
	must(t, err)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for _, row := range []struct {
		name string
		call func() error
		err  error
		want string
		code codes.Code
	}{
		{"conclave.try_lock", func() error { _, err := n.FencedLock("x").TryLock(ctx); return err }, conclave.ErrLocked, "conclave.refusal=locked", codes.Unset},
		{"conclave.lock", func() error { _, err := n.FencedLock("x").Lock(cancelled); return err }, context.Canceled, "error.type=canceled", codes.Error},
		{"conclave.txn", func() error { _, err := n.KV().Txn(ctx, conclave.OpExpect("k", 7)); return err },
			conclave.ErrCompareFailed, "conclave.refusal=compare_failed", codes.Unset},
		{"conclave.put", func() error { _, err := n.KV().Put(ctx, "\x00", nil); return err }, conclave.ErrInvalid, "error.type=invalid", codes.Error},
		{"conclave.acquire", func() error { _, err := n.Semaphore("s", 1).Acquire(ctx, 2); return err }, conclave.ErrTooLarge, "error.type=too_large", codes.Error},
		{"conclave.resign", func() error { return n.Election("e").Resign(ctx) }, conclave.ErrNotHeld, "error.type=not_held", codes.Error},
	} {
		if err := row.call(); !errors.Is(err, row.err) {
			t.Errorf("%s: %v, want %v", row.name, err, row.err)
		}
		s := last(t, recorders[0], row.name)
		all := attributes(s.Attributes())
		if s.Status().Code != row.code || all[len(all)-1] != row.want {
			t.Errorf("%s: status %v, %q, want %v, %s", row.name, s.Status(), all, row.code, row.want)
		}
	}
}
