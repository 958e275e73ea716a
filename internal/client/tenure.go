package client

import (
	"context"
	"time"

	"github.com/conclave-go/conclave/internal/linger"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// tenure is a tenure of this process (see package linger). In the group it has a handle
// of its own; here its owners are handles of the lease.
type tenure struct {
	keptTenure

	// Guarded by keeper.mu.
	linger.Tenure[*keptRequest]
	first uint64        // the first fence, by which the group knows the hold
	owner *Lock         // that has the lock; nil: none
	stay  time.Duration // for which it lingers
	idle  bool          // and rest has noted it
	since time.Time     // it is idle; valid while it is
	timer *time.Timer   // nil: it was never idle
	due   time.Time     // when the timer fires; zero: it does not run
	done  func()        // to call once it is released
	place *wire.Reply   // that queued the request of the tenure; nil: it was not
	cause []byte        // of the release that made the lock free for the next owner; see Trace
}

// keptRequest is a Lock that waits in a tenure.
type keptRequest struct {
	lock   *Lock
	result chan acquired    // takes one
	places chan *wire.Reply // takes one; nil: the call is not traced
	// Guarded by keeper.mu.
	waited   bool // it was not served at once
	hasPlace bool // in places, now or earlier
}

// newPlace returns a place for a request, in one allocation with it.
func newPlace(r keptRequest) *linger.Place[*keptRequest] {
	p := &struct {
		linger.Place[*keptRequest]
		request keptRequest
	}{request: r}
	p.Owner = &p.request
	return &p.Place
}

// request requests the lock for the tenure.
func (t *tenure) request(ctx context.Context, wait bool) {
	err := t.run(ctx, wait, false, t.queued)
	if err == nil {
		return
	}
	t.keeper.mu.Lock()
	defer t.keeper.mu.Unlock()
	if t.Begun() {
		return // the grant came first; all that waited had left
	}
	for _, r := range t.Abort() {
		r.result <- acquired{err: err}
	}
	t.sync()
	t.keeper.over(t)
}

// granted implements target.
func (t *tenure) granted(_ *Lease, r *wire.Reply, _ instant) error {
	t.keeper.mu.Lock()
	t.placed(t.asked.queued) // whose mu the caller holds
	t.first, t.cause = r.GetFence(), r.GetTrace()
	t.Begin(r.GetFence(), max(r.GetBlock(), 1))
	if n := t.keeper.names[t.name]; n.open == nil {
		n.open = t
	} else if n.open != t {
		t.Close()
	}
	step := t.next()
	t.placeAll() // those that wait for the first that was served
	t.keeper.mu.Unlock()
	t.submit(step)
	return nil
}

// change changes the tenure and does what follows.
func (t *tenure) change(event func()) {
	t.keeper.mu.Lock()
	event()
	step := t.next()
	t.keeper.mu.Unlock()
	t.submit(step)
}

// next does what follows in this process, and returns the step that does not. keeper.mu
// is held.
func (t *tenure) next() (step linger.Step[*keptRequest]) {
	defer t.sync()
	for {
		switch step = t.Next(); step.Action {
		case linger.Serve:
			served := acquired{fence: step.Fence, cause: t.causeFor(step.Owner)}
			served.err = t.grant(step.Owner.lock, step.Fence)
			step.Owner.result <- served
		case linger.Refuse:
			step.Owner.result <- acquired{err: errAnotherTenure}
		case linger.Release:
			if t.timer != nil {
				t.timer.Stop()
			}
			t.done = t.keeper.undoing(t.name)
			t.keeper.over(t)
			return step
		default:
			if t.Idle() && t.keeper.of(t.name).abstains() {
				t.Close()
				continue
			}
			t.rest()
			return step
		}
	}
}

// sync takes a tenure that is closed out of the way of newcomers. keeper.mu is held.
func (t *tenure) sync() {
	if n := t.keeper.names[t.name]; n != nil && n.open == t && !t.Open() {
		n.open = nil
	}
}

// submit does a step that concerns the group.
func (t *tenure) submit(step linger.Step[*keptRequest]) {
	lease := t.keeper.lease
	switch step.Action {
	case linger.Release:
		lease.client.pursue(lease.client.traced(t.releaseCommand(lease, grant{fence: t.first}), t.cause), func(answer) { t.done() })
	case linger.Refill:
		lease.client.pursue(&wire.Command{Op: &wire.Command_Refill{Refill: &wire.Refill{
			Name: t.name, Session: lease.id[:], Handle: t.number, Fence: t.first, Fences: step.Fences,
		}}}, func(a answer) {
			t.change(func() {
				if a.fault() != nil {
					t.Refilled(0, 0)
				} else {
					t.Refilled(a.reply.GetFence(), a.reply.GetBlock())
				}
			})
		})
	}
}

// grant grants the lock to a handle. keeper.mu is held.
func (t *tenure) grant(l *Lock, fence uint64) error {
	if err := l.begin(newHold(l.name, t.keeper.lease, grant{fence: fence}), t); err != nil {
		t.Freed()
		return err
	}
	t.keeper.lease.client.metrics.Kept.Add(1)
	t.owner, t.idle, t.cause = l, false, nil
	if l.reentrant { // its other calls are re-entries now
		for _, r := range t.Expel(func(r *keptRequest) bool { return r.lock == l }) {
			r.result <- acquired{err: errAnotherTenure}
		}
	}
	return nil
}

// freed notes that the handle has released the lock, by the call of that ID.
func (t *tenure) freed(l *Lock, id []byte) {
	t.keeper.mu.Lock() // not by change, which costs an allocation
	t.owner, t.stay, t.cause = nil, l.linger, id
	t.Freed()
	step := t.next()
	t.keeper.mu.Unlock()
	t.submit(step)
}

// refusal refuses a newcomer that may not join, or that would have to wait and does not.
// keeper.mu is held.
func (t *tenure) refusal(wait bool) error {
	switch {
	case !wait && t.Kept() && !t.Idle():
		return refusal(t.holder(wire.Code_LOCKED))
	case t.Waiting() >= maxKeptRequests:
		return refusal(&wire.Reply{Code: wire.Code_BUSY, Detail: "the queue of this process is full (16384 waiters)"})
	}
	return nil
}

// holder is a refusal, or an interruption, because of the present owner. keeper.mu is
// held.
func (t *tenure) holder(code wire.Code) *wire.Reply {
	r := &wire.Reply{Code: code}
	if l := t.owner; l != nil {
		fence, _ := l.Fence()
		r.Holder = &wire.Holder{
			Session: t.keeper.lease.id[:], Member: t.keeper.lease.client.group.Process(), Handle: l.number, Fence: fence,
		}
	}
	return r
}

// await waits for the result of a request.
func (t *tenure) await(ctx context.Context, p *linger.Place[*keptRequest], tr *Trace) (fence uint64, err error) {
	if tr == nil {
		return t.awaitTraced(ctx, p, nil)
	}
	return orLeave(func() (uint64, error) { return t.awaitTraced(ctx, p, tr) },
		func(why error) error { return t.leave(ctx, p, why) })
}

func (t *tenure) awaitTraced(ctx context.Context, p *linger.Place[*keptRequest], tr *Trace) (uint64, error) {
	for {
		select {
		case r := <-p.Owner.places:
			tr.Queued(r)
		case r := <-p.Owner.result:
			tr.caused(p.Owner.result, r, p.Owner.places)
			return r.fence, r.err
		case <-t.keeper.lease.done:
			tr.drain(p.Owner.places)
			return 0, t.leave(ctx, p, errLeaseEnded)
		case <-ctx.Done():
			tr.drain(p.Owner.places)
			return 0, t.leave(ctx, p, nil)
		}
	}
}

// leave ends the wait of a request, because the lease has ended or, with no other reason,
// because its context is done. The last one to leave a tenure that was not granted yet
// withdraws the request of the tenure.
func (t *tenure) leave(ctx context.Context, p *linger.Place[*keptRequest], why error) error {
	var interrupted error
	if why == nil { // before mu is held: the context's methods may be the application's
		interrupted = ContextError(ctx)
	}
	t.keeper.mu.Lock()
	if why == nil {
		why = &Fault{Kind: Interrupted, Cause: interrupted, Reply: t.holder(wire.Code_QUEUED)}
	}
	if !t.Leave(p) {
		t.keeper.mu.Unlock()
		if r := <-p.Owner.result; r.err == nil {
			p.Owner.lock.releaseUnreceived()
		}
		return why
	}
	last := !t.Kept() && t.Waiting() == 0
	if last {
		t.Close()
		t.sync()
	}
	requested := !t.Kept()
	t.keeper.mu.Unlock()
	if !requested {
		return why
	}
	return t.interrupted(ctx, last, why)
}

// rest sets the timer of a tenure that has become idle. keeper.mu is held.
func (t *tenure) rest() {
	if !t.Idle() || t.idle {
		return
	}
	t.idle, t.since = true, time.Now()
	if due := t.since.Add(t.stay); t.due.IsZero() || due.Before(t.due) {
		t.setTimer(due)
	}
}

func (t *tenure) setTimer(due time.Time) {
	t.due = due
	if t.timer == nil {
		t.timer = time.AfterFunc(time.Until(due), t.rested)
	} else {
		t.timer.Reset(time.Until(due))
	}
}

// rested runs when the tenure may have been idle for long enough. The timer is set once
// for many idle times.
func (t *tenure) rested() {
	if t.keeper.lease.Err() != nil {
		return
	}
	t.change(func() {
		t.due = time.Time{}
		switch due := t.since.Add(t.stay); {
		case !t.Idle():
		case time.Until(due) <= 0:
			t.Close()
		default:
			t.setTimer(due)
		}
	})
}

// acquireHere acquires a lock that lingers here and is free, and does nothing else.
func (l *Lock) acquireHere(ctx context.Context) (fence uint64, ok bool) {
	if l.linger == 0 || ctx.Err() != nil || l.order.wait() != nil || l.Holds() > 0 {
		return 0, false
	}
	lease := l.client.leases.ownOf(l.lease)
	if lease == nil {
		return 0, false
	}
	return lease.keeper.take(l)
}

// releaseUnreceived releases a grant of a tenure that no caller has received.
func (l *Lock) releaseUnreceived() {
	if t := l.take(); t.hold != nil && !t.lost && t.last && t.hold.in != nil {
		t.hold.in.freed(l, nil)
	}
}

// reenter adds a hold to the handle's own, of a tenure.
func (l *Lock) reenter(own *Hold) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch h := l.hold; {
	case h != own: // it was released meanwhile
		return 0, errAnotherTenure
	case h.isLost():
		return 0, &Fault{Kind: Lost}
	case h.count >= machine.MaxHolds, l.limit != 0 && h.count >= int(l.limit):
		return 0, refusal(&wire.Reply{Code: wire.Code_LIMIT_REACHED})
	default:
		h.count++
		return h.fence, nil
	}
}
