package conclave

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Tracer makes a span for each call of a node that it wants to trace: Lock, TryLock, Unlock, RLock, TryRLock,
// RUnlock, Downgrade, Extend, Acquire, TryAcquire, Release, Campaign, Resign, the writes of [KV], the start and the end of
// each run of a [Job], and the joins and releases of [Shards]. Do, Run and Locker make the calls that they stand for. The module contrib/conclaveotel has a Tracer for OpenTelemetry.
//
// The methods of a Tracer are called concurrently, those of one Span one after the other, all on
// the goroutine of the call that they trace. One that blocks delays that call, even after it was
// granted something, and no other; the call's context does not end it. One that makes a call of the
// node is called for that again. A panic in one is logged, and from then on the node traces
// nothing: the Tracer may have kept a lock.
type Tracer interface {
	// Begin begins the span of a call that was made with ctx, before anything else is done.
	// nil: this call is not traced.
	Begin(ctx context.Context, op Operation) Span
}

// Span is one call under way.
type Span interface {
	// Carrier returns up to 64 bytes that identify the span in other processes, such as a W3C
	// traceparent; nil: nothing does. It is called once, before anything is sent, of a Span of
	// Unlock, RUnlock, Downgrade, Resign, Release or the end of a run. The group's log carries the bytes to the waiters that
	// the release lets in, so each member can read them. More than 64 count as none.
	Carrier() []byte
	// Event adds what has happened.
	Event(SpanEvent)
	// End ends the span with the error that the call returns. CompareAndSwap and
	// CompareAndDelete return false for ErrCompareFailed.
	End(err error)
}

// Operation is what a traced call does.
type Operation struct {
	Kind CallKind // any but CallRead
	Op   string   // as in [Error]: "lock", "compare and swap", "txn", ...
	Name string   // of the lock, election, semaphore, key, job with its key, or set of shards, or the first names of a set; none for a Txn
	Node MemberID // that makes the call
	// Group is the name of the further group that the call is made on, as WithGroup has it, whether or not there is one; "": the default group.
	Group string
	// Fence is that of the hold that the handle has when the call begins, lost or not, which
	// Unlock, RUnlock, Downgrade, Resign, Release and the end of a run give up, and Extend extends; 0: none.
	Fence   Fence
	Permits int // of Acquire and TryAcquire
	Ops     int // operations of a write
}

// SpanEventKind is the kind of a [SpanEvent].
type SpanEventKind int

// The kinds of events. A call under the node's own session that waits on under the next one
// is queued again.
const (
	SpanQueued  SpanEventKind = iota + 1 // the request waits
	SpanGranted                          // the call got what it asked for
	SpanLost                             // the call found the hold lost, or lost it
)

// String returns the kind in lower case, as "queued".
func (k SpanEventKind) String() string {
	names := [SpanLost]string{"queued", "granted", "lost"}
	if k >= 1 && k <= SpanLost {
		return names[k-1]
	}
	return fmt.Sprintf("SpanEventKind(%d)", int(k))
}

// SpanEvent is something that has happened to a call.
type SpanEvent struct {
	Kind SpanEventKind
	// Fence is that of the grant, or of the hold that was lost. With SpanQueued it is the
	// holder's, like Session and Node: of permits, the one's that holds some for the longest.
	// They are zero if there is no holder, as in a lock-delay, or if it is not known.
	Fence   Fence
	Session SessionID
	Node    MemberID
	// Position is the position in the queue, with SpanQueued; 1 is next in line. Sets that wait for the lock count: that of a
	// LockSet is the largest in the queues of its names. A request behind a set may be granted before it, until the set has the lock reserved.
	Position int
	// Cause is the Carrier of the span whose release made room for this grant, on any node
	// of the group: check it like other data from the network. nil: the request was granted at once, or
	// after a withdrawal, a Resize, the end of a session or of a lock-delay; the release was not
	// traced; this node may have received a snapshot meanwhile; or a member runs a build without traces.
	Cause []byte
}

// tracing calls an application's tracer for the calls on a group.
type tracing struct {
	tracer Tracer          // nil: none
	group  string          // "": the default one
	node   func() MemberID // of this process: of its member or its client
	log    *slog.Logger
	broken *atomic.Bool // it has panicked; of all groups that it traces
}

func newTracing(tracer Tracer, log *slog.Logger, node func() MemberID) tracing {
	return tracing{tracer: tracer, node: node, log: log, broken: new(atomic.Bool)}
}

// of is the same tracer for the calls on a further group.
func (t tracing) of(group string, node func() MemberID) tracing {
	t.group, t.node = group, node
	return t
}

// on reports whether calls are traced.
func (t *tracing) on() bool { return t.tracer != nil && !t.broken.Load() }

// span is one traced call; nil: the call is not traced.
type span struct {
	client.Trace
	tracing *tracing
	of      Span
	op      Operation
	grant   grant // of the call; nil: none yet
}

// grant is what a call was granted.
type grant interface {
	// giveUp releases it in the background.
	giveUp()
}

// begin begins the span of a call.
func (t *tracing) begin(ctx context.Context, op Operation) *span {
	if !t.on() {
		return nil
	}
	op.Node, op.Group = t.node(), t.group
	s := &span{tracing: t, op: op}
	s.Queued = s.queued
	s.try(func() {
		if s.of = t.tracer.Begin(ctx, op); s.of == nil {
			return
		}
		switch op.Kind {
		case CallUnlock, CallResign, CallRelease, CallRUnlock, CallDowngrade, CallEndRun:
			if id := s.of.Carrier(); len(id) <= machine.MaxTrace {
				s.ID = slices.Clone(id)
			}
		}
	})
	if s.of == nil {
		return nil
	}
	return s
}

// try shields the caller from a panic of the application.
func (s *span) try(f func()) {
	if s.tracing.broken.Load() {
		return
	}
	defer func() {
		if r := recover(); r != nil && s.tracing.broken.CompareAndSwap(false, true) {
			s.tracing.log.Error("the tracer panicked: nothing is traced any more", "panic", fmt.Sprint(r))
		}
	}()
	f()
}

// trace is what the client needs of the span.
func (s *span) trace() *client.Trace {
	if s == nil {
		return nil
	}
	return &s.Trace
}

func (s *span) event(e SpanEvent) { s.try(func() { s.of.Event(e) }) }

func (s *span) queued(r *wire.Reply) {
	holder := r.GetHolder()
	session, _ := wire.IDFrom(holder.GetSession()) // else there is none
	s.event(SpanEvent{
		Kind: SpanQueued, Position: int(r.GetPosition()),
		Session: SessionID(session), Node: MemberID(holder.GetMember()), Fence: Fence(holder.GetFence()),
	})
}

func (s *span) granted(f Fence, g grant) {
	if s == nil {
		return
	}
	s.grant = g
	s.complete(func() { s.event(SpanEvent{Kind: SpanGranted, Fence: f, Cause: s.Cause}) })
}

// complete calls the tracer. If that ends the goroutine (runtime.Goexit), no caller learns of the
// grant, which is released then.
func (s *span) complete(report func()) {
	returned := false
	defer func() {
		if !returned && s.grant != nil {
			s.grant.giveUp()
		}
	}()
	report()
	returned = true
}

// end ends the span with the error of the call.
func (s *span) end(err error) {
	if s == nil {
		return
	}
	var done *Error
	if !errors.As(err, &done) {
		err = fault(s.op.Op, s.op.Name, err)
	}
	if errors.Is(err, ErrLockOwnershipLost) {
		s.event(SpanEvent{Kind: SpanLost, Fence: s.op.Fence})
	}
	s.complete(func() { s.try(func() { s.of.End(err) }) })
}

// span begins the span of a call of the handle.
func (l *FencedLock) span(ctx context.Context, kind CallKind, op string) *span {
	t := &l.group.tracing
	if !t.on() {
		return nil
	}
	return t.begin(ctx, Operation{Kind: kind, Op: op, Name: l.name, Fence: Fence(l.handle.GrantedFence())})
}
