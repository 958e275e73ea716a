// Package conclaveotel traces the calls of a conclave node with OpenTelemetry.
//
//	cfg.Tracer = conclaveotel.NewTracer(otel.GetTracerProvider())
//
// Each Lock, TryLock, Unlock, Acquire, TryAcquire, Release, Campaign, Resign and write of KV is a
// span of kind client, a child of the span in the call's context, named conclave.lock,
// conclave.try_lock, conclave.compare_and_swap and so on. A request that waits has the event
// queued, with its position and the holder. Its grant is the event granted, and a link to the
// span of the release that caused it, which another process has exported.
//
// The package is a module of its own: programs without it link no OpenTelemetry.
package conclaveotel

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/conclave-go/conclave"
)

// Scope is the name of the tracer that NewTracer asks its provider for.
const Scope = "github.com/conclave-go/conclave/contrib/conclaveotel"

// traceparent is the header of the W3C's Trace Context whose value a release carries.
const traceparent = "traceparent"

// NewTracer returns a Tracer for [conclave.Config], which may serve several nodes. A call that
// the provider's sampler drops costs the group nothing: its release carries no identity, so no
// grant links to it.
//
// Attributes of spans: conclave.lock.name, conclave.semaphore.name, conclave.election.name, conclave.job.name, conclave.shards.name or
// conclave.key, whose values are those of the program; conclave.group.name, of a call on a further group; conclave.node.id; conclave.fence, of what was granted or
// released; conclave.semaphore.permits; conclave.txn.operations; error.type, of a call that failed; and
// conclave.refusal, of one that was refused as its caller had to expect: locked,
// lock_delay, job_done or compare_failed, with which the status stays unset.
//
// Attributes of events: conclave.queue.position, conclave.holder.session.id,
// conclave.holder.node.id and conclave.holder.fence of queued; conclave.fence of granted and lost.
func NewTracer(provider trace.TracerProvider) conclave.Tracer {
	return tracer{provider.Tracer(Scope)}
}

type tracer struct{ trace.Tracer }

// Begin implements [conclave.Tracer].
func (t tracer) Begin(ctx context.Context, op conclave.Operation) conclave.Span {
	_, s := t.Start(ctx, "conclave."+strings.ReplaceAll(op.Op, " ", "_"),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes(op)...))
	if !s.IsRecording() {
		s.End()
		return nil
	}
	return span{s}
}

func attributes(op conclave.Operation) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("conclave.node.id", op.Node.String())}
	if op.Group != "" {
		all = append(all, attribute.String("conclave.group.name", text(op.Group)))
	}
	if op.Name != "" {
		all = append(all, attribute.String(nameKey(op.Kind), text(op.Name)))
	}
	switch op.Kind {
	case conclave.CallUnlock, conclave.CallResign, conclave.CallRelease, conclave.CallRUnlock, conclave.CallDowngrade, conclave.CallExtend, conclave.CallEndRun:
		if op.Fence != 0 {
			all = append(all, fence(op.Fence))
		}
	case conclave.CallAcquire, conclave.CallTryAcquire:
		all = append(all, attribute.Int("conclave.semaphore.permits", op.Permits))
	case conclave.CallWrite:
		all = append(all, attribute.Int("conclave.txn.operations", op.Ops))
	}
	return all
}

// maxText is more than any name has that the group admits, in bytes.
const maxText = 2 << 10

// text returns a text as OTLP admits it: one that is not UTF-8 would cost the whole batch of
// spans in which it is exported. Names come here before they are checked.
func text(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxText)], "\ufffd") }

func nameKey(kind conclave.CallKind) string {
	switch kind {
	case conclave.CallAcquire, conclave.CallTryAcquire, conclave.CallRelease:
		return "conclave.semaphore.name"
	case conclave.CallCampaign, conclave.CallResign:
		return "conclave.election.name"
	case conclave.CallStartRun, conclave.CallEndRun:
		return "conclave.job.name"
	case conclave.CallJoinShards, conclave.CallReleaseShards:
		return "conclave.shards.name"
	case conclave.CallWrite:
		return "conclave.key"
	}
	return "conclave.lock.name"
}

// fence is text, as in logs and errors: an attribute's number has a sign.
func fence(f conclave.Fence) attribute.KeyValue {
	return attribute.String("conclave.fence", f.String())
}

type span struct{ trace.Span }

// Carrier implements [conclave.Span]. A link to a span that is not sampled would lead nowhere.
func (s span) Carrier() []byte {
	if !s.SpanContext().IsSampled() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), s.Span), carrier)
	return []byte(carrier[traceparent])
}

// Event implements [conclave.Span].
func (s span) Event(e conclave.SpanEvent) {
	switch e.Kind {
	case conclave.SpanQueued:
		s.AddEvent(e.Kind.String(), trace.WithAttributes(place(e)...))
	case conclave.SpanGranted:
		if cause := released(e.Cause); cause.IsValid() {
			s.AddLink(trace.Link{SpanContext: cause, Attributes: []attribute.KeyValue{
				attribute.String("conclave.link", "released_by"),
			}})
		}
		s.SetAttributes(fence(e.Fence))
		s.AddEvent(e.Kind.String(), trace.WithAttributes(fence(e.Fence)))
	default:
		s.AddEvent(e.Kind.String(), trace.WithAttributes(fence(e.Fence)))
	}
}

func place(e conclave.SpanEvent) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.Int("conclave.queue.position", e.Position)}
	if e.Fence != 0 {
		all = append(all, attribute.String("conclave.holder.session.id", e.Session.String()),
			attribute.String("conclave.holder.node.id", e.Node.String()),
			attribute.String("conclave.holder.fence", e.Fence.String()))
	}
	return all
}

// released returns the span that a carrier of any member identifies; an invalid one if the
// bytes are something else.
func released(carrier []byte) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{traceparent: string(carrier)}))
}

// End implements [conclave.Span].
func (s span) End(err error) {
	defer s.Span.End()
	if err == nil {
		return
	}
	class, refused := classify(err)
	if refused {
		s.SetAttributes(attribute.String("conclave.refusal", class))
		return
	}
	s.SetAttributes(attribute.String("error.type", class))
	s.SetStatus(codes.Error, text(err.Error()))
}
