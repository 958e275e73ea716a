package client

import (
	"context"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// share acquires a lock in shared mode for a handle, which has own already, or nil. It blocks as
// Lock.Acquire does.
func (k *keeper) share(ctx context.Context, s *shares, own *Hold, wait bool, tr *Trace) (fence uint64, err error) {
	if own != nil && own.part != nil && s.lock.reentrant {
		return s.reenter(own.part)
	}
	for {
		k.mu.Lock()
		n := k.of(s.lock.name)
		t := n.shared
		if t == nil || !wait && !t.kept {
			// A request that waits queues behind what is being released.
			if settled := n.order.wait(); settled != nil && !wait {
				k.mu.Unlock()
				select {
				case <-settled:
					continue
				case <-k.lease.done:
					return 0, errLeaseEnded
				case <-ctx.Done():
					return 0, contextFault(Unavailable, ctx)
				}
			}
			t = k.requestShared(s.lock.name, n, wait)
		}
		if t.kept {
			_, err := t.admit(s)
			k.mu.Unlock()
			return t.fence, err
		}
		if len(t.waiting) >= maxKeptRequests {
			k.mu.Unlock()
			return 0, refusal(&wire.Reply{Code: wire.Code_BUSY, Detail: "the queue of this process is full (16384 waiters)"})
		}
		r := &sharedRequest{shares: s, result: make(chan acquired, 1), places: tr.places()}
		t.waiting[r] = struct{}{}
		if t.place != nil {
			r.queued(t.place)
		}
		k.mu.Unlock()
		return t.await(ctx, r, tr)
	}
}

// requestShared is request for a shared tenure. k.mu is held.
func (k *keeper) requestShared(name string, n *kept, wait bool) *sharedTenure {
	t := &sharedTenure{waiting: make(map[*sharedRequest]struct{})}
	n.sharedTenures = append(n.sharedTenures, t)
	if wait {
		n.shared = t
	}
	t.begin(k, name, t, func(ctx context.Context) { t.request(ctx, wait) })
	return t
}

// sharedOver takes out a tenure that is over. k.mu is held.
func (k *keeper) sharedOver(t *sharedTenure) {
	n := k.names[t.name]
	if n.shared == t {
		n.shared = nil
	}
	n.sharedTenures = slices.DeleteFunc(n.sharedTenures, func(o *sharedTenure) bool { return o == t })
	k.tidy(t.name)
}

// await waits for the result of a request.
func (t *sharedTenure) await(ctx context.Context, r *sharedRequest, tr *Trace) (uint64, error) {
	if tr == nil {
		return t.awaitTraced(ctx, r, nil)
	}
	return orLeave(func() (uint64, error) { return t.awaitTraced(ctx, r, tr) },
		func(why error) error { return t.leave(ctx, r, why) })
}

func (t *sharedTenure) awaitTraced(ctx context.Context, r *sharedRequest, tr *Trace) (uint64, error) {
	for {
		select {
		case place := <-r.places:
			tr.Queued(place)
		case result := <-r.result:
			tr.caused(r.result, result, r.places)
			return result.fence, result.err
		case <-t.keeper.lease.done:
			tr.drain(r.places)
			return 0, t.leave(ctx, r, errLeaseEnded)
		case <-ctx.Done():
			tr.drain(r.places)
			return 0, t.leave(ctx, r, nil)
		}
	}
}

// leave ends the wait of a request, as that of a tenure does.
func (t *sharedTenure) leave(ctx context.Context, r *sharedRequest, why error) error {
	var interrupted error
	if why == nil { // before mu is held: the context's methods may be the application's
		interrupted = ContextError(ctx)
	}
	t.keeper.mu.Lock()
	if why == nil {
		why = &Fault{Kind: Interrupted, Cause: interrupted, Reply: t.place}
	}
	if _, waits := t.waiting[r]; !waits {
		p := r.part
		t.keeper.mu.Unlock()
		if result := <-r.result; result.err == nil {
			r.shares.releaseUnreceived(p)
		}
		return why
	}
	delete(t.waiting, r)
	last := len(t.waiting) == 0
	if last {
		t.close()
	}
	t.keeper.mu.Unlock()
	return t.interrupted(ctx, last, why)
}

// leave releases a hold, and reports whether there was one.
func (p *part) leave() bool {
	ok, last := p.gate.Exit()
	if last {
		p.of.left()
	}
	return ok
}

// releaseUnreceived releases a hold that no caller has received. The release of another caller may have
// taken it for its own; then that one is released.
func (s *shares) releaseUnreceived(p *part) {
	if p.leave() {
		return
	}
	if t := s.takeBack(); t.hold != nil && !t.lost {
		t.release(s)
	}
}

// localLimit is the limit of holds of the handle in a tenure; 0 is none.
func (s *shares) localLimit() uint64 { return uint64(s.lock.limit) }

// reenter adds a hold to those that the handle has in a tenure.
func (s *shares) reenter(p *part) (uint64, error) {
	switch {
	case p.hold.isLost():
		return 0, &Fault{Kind: Lost}
	case p.gate.Reenter(s.localLimit()):
		return p.of.fence, nil
	case p.gate.Holds() == 0: // it was released meanwhile
		return 0, errAnotherTenure
	default:
		return 0, refusal(&wire.Reply{Code: wire.Code_LIMIT_REACHED})
	}
}

// acquireHere acquires a share that lingers here, and does nothing else.
func (s *shares) acquireHere(ctx context.Context) (fence uint64, ok bool) {
	p := s.here.Load()
	if p == nil || ctx.Err() != nil || s.lock.reentrant && s.hasOthers() || p.hold.isLost() || !p.gate.Enter(s.localLimit()) {
		return 0, false
	}
	if p.hold.isLost() { // it counts from here on, and was not lost if it was not held
		s.releaseUnreceived(p)
		return 0, false
	}
	s.lock.client.metrics.Kept.Add(1)
	return p.of.fence, true
}

// hasOthers reports whether there are holds that the group has granted: re-entries count with
// those.
func (s *shares) hasOthers() bool {
	s.lock.mu.Lock()
	defer s.lock.mu.Unlock()
	return len(s.holds) > 0
}

// releaseHere releases a hold of the tenure that lingers here, if it is the only one of which the
// handle may have some.
func (s *shares) releaseHere() (released bool, err error) {
	p := s.here.Load()
	if p == nil || s.several.Load() || !p.leave() {
		return false, nil
	}
	if p.hold.isLost() {
		return true, &Fault{Kind: Lost}
	}
	return true, nil
}

// join adds the handle's part of another tenure. mu of the lock is held.
func (s *shares) join(p *part) {
	s.parts = append(s.parts, p)
	s.here.Store(p)
	s.tidy()
	s.lock.entries.note()
}

// tidy takes out the parts of other tenures without holds. A tenure of which one is may go on, and a
// caller may be about to enter, so they are closed. mu of the lock is held.
func (s *shares) tidy() {
	here := s.here.Load()
	s.parts = slices.DeleteFunc(s.parts, func(p *part) bool { return p != here && p.gate.Retire() })
	s.several.Store(len(s.parts) > 1)
}

// takePart takes a hold off that a tenure has granted: of an earlier tenure first, so that it
// ends. It returns nil if there is none. mu of the lock is held.
func (s *shares) takePart() (of *part, last bool) {
	defer s.tidy()
	for _, p := range s.parts {
		if ok, last := p.gate.Exit(); ok {
			return p, last
		}
	}
	return nil, false
}

// partHold is the hold that stands for those of a tenure; nil: there are none. mu of the lock is held.
func (s *shares) partHold() *Hold {
	for _, p := range s.parts {
		if p.gate.Holds() > 0 {
			return p.hold
		}
	}
	return nil
}
