package client

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/linger"
	"github.com/conclave-go/conclave/internal/wire"
)

// sharedTenure is a tenure of this process in shared mode: one share in the group, which
// handles of the lease have at the same time:
//
//	requested ──granted──> kept ──close, and the last hold here was released──> over
//
// From close on no newcomer is admitted, so that the share ends although there are always
// holders. In the group it has a handle of its own.
type sharedTenure struct {
	keptTenure

	// Guarded by keeper.mu.
	grant              // of the group; valid once it is kept
	kept, closed, over bool
	waiting            map[*sharedRequest]struct{}
	parts              []*part
	most               int           // how many parts there may be until those are taken out that are not used
	stay               time.Duration // for which it lingers
	idle               time.Time     // no hold has begun or ended since then; zero: one may have
	timer              *time.Timer   // nil: it was not kept
	done               func()        // to call once it is released
	place              *wire.Reply   // that queued the request of the tenure; nil: it was not
}

// part is what a handle has of a shared tenure. Its holds begin and end without a mutex.
type part struct {
	of   *sharedTenure
	gate linger.Gate
	hold *Hold // which stands for all of them

	retired bool // guarded by keeper.mu; it is no longer of the tenure
}

// sharedRequest is an AcquireShared that waits in a tenure.
type sharedRequest struct {
	shares *shares
	result chan acquired    // takes one
	places chan *wire.Reply // takes one; nil: the call is not traced
	part   *part            // guarded by keeper.mu; once it was granted
}

// request requests the share for the tenure.
func (t *sharedTenure) request(ctx context.Context, wait bool) {
	err := t.run(ctx, wait, true, t.queued)
	if err == nil {
		return
	}
	t.keeper.mu.Lock()
	defer t.keeper.mu.Unlock()
	if t.kept {
		return // the grant came first; all that waited had left
	}
	t.answer(acquired{err: err})
	t.closed, t.over = true, true
	t.keeper.sharedOver(t)
}

// answer delivers a result to all that wait. keeper.mu is held.
func (t *sharedTenure) answer(result acquired) {
	for r := range t.waiting { // order: all get the same result
		r.result <- result
	}
	clear(t.waiting)
}

// queued notes that the request of the tenure was queued, and with it those that wait here.
func (t *sharedTenure) queued(place *wire.Reply) {
	t.keeper.mu.Lock()
	defer t.keeper.mu.Unlock()
	t.placed(place)
}

// placed notes the place of the tenure; nil: it was not queued. keeper.mu is held.
func (t *sharedTenure) placed(place *wire.Reply) {
	if t.place == nil && place != nil {
		t.place = place
		for r := range t.waiting { // order: all have the same place
			r.queued(place)
		}
	}
}

func (r *sharedRequest) queued(place *wire.Reply) {
	if r.places != nil {
		r.places <- proto.CloneOf(place)
	}
}

// granted implements target.
func (t *sharedTenure) granted(lease *Lease, r *wire.Reply, _ instant) error {
	t.keeper.mu.Lock()
	t.placed(t.asked.queued) // whose mu the caller holds
	t.grant, t.kept = grantOf(r), true
	n := t.keeper.of(t.name)
	for request := range t.waiting { // order: all are granted at once
		result := acquired{fence: t.fence, cause: r.GetTrace()}
		if request.part, result.err = t.admit(request.shares); result.err != nil {
			result.fence = 0
		}
		request.result <- result
	}
	clear(t.waiting)
	if n.shared == nil && !t.closed {
		n.shared = t
	} else if n.shared != t {
		t.close()
	}
	release := t.next()
	if !t.over {
		t.idle = time.Now()
		t.timer = time.AfterFunc(t.tick(), t.ticked)
	}
	t.keeper.mu.Unlock()
	release()
	return nil
}

// admit adds a hold of a handle. keeper.mu is held.
func (t *sharedTenure) admit(s *shares) (*part, error) {
	if t.keeper.lease.Err() != nil {
		return nil, errLeaseEnded
	}
	s.lock.mu.Lock() // until the hold has begun: a part without one may be taken out
	defer s.lock.mu.Unlock()
	p, err := t.partOf(s)
	if err != nil {
		return nil, err
	}
	if !p.gate.Admit(s.localLimit()) {
		return nil, refusal(&wire.Reply{Code: wire.Code_LIMIT_REACHED})
	}
	t.keeper.lease.client.metrics.Kept.Add(1)
	t.stay = max(t.stay, s.linger)
	return p, nil
}

// partOf returns the part of a handle, which is new if it has none. keeper.mu and mu of the lock are held.
func (t *sharedTenure) partOf(s *shares) (*part, error) {
	l := s.lock
	for _, p := range s.parts {
		if p.of == t && !p.retired {
			return p, nil
		}
	}
	if s.lost() || l.hold != nil && l.hold.isLost() {
		return nil, &Fault{Kind: Lost} // of an earlier hold, which is still owed
	}
	p := &part{of: t, hold: newHold(t.name, t.keeper.lease, t.grant)}
	p.hold.part = p
	if t.keeper.lease.add(p.hold) != nil {
		return nil, errLeaseEnded
	}
	if t.closed {
		p.gate.Close()
	}
	p.gate.Watch(t.keeper.of(t.name).abstains())
	if len(t.parts) >= t.most {
		t.retire()
		t.most = 2*len(t.parts) + 64
	}
	t.parts = append(t.parts, p)
	s.join(p)
	return p, nil
}

// retire takes out the parts without holds: a program may make a handle for each use.
// keeper.mu is held.
func (t *sharedTenure) retire() {
	t.parts = slices.DeleteFunc(t.parts, func(p *part) bool {
		if p.retired = p.gate.Retire(); p.retired {
			t.keeper.lease.remove(p.hold)
		}
		return p.retired
	})
}

// close admits no newcomers any more. keeper.mu is held.
func (t *sharedTenure) close() {
	t.closed = true
	for _, p := range t.parts {
		p.gate.Close()
	}
	if n := t.keeper.names[t.name]; n != nil && n.shared == t {
		n.shared = nil
	}
}

// held reports whether a handle has a hold. keeper.mu is held.
func (t *sharedTenure) held() bool {
	for _, p := range t.parts {
		if p.gate.Holds() > 0 {
			return true
		}
	}
	return false
}

// next ends a tenure that is closed and that no handle has, and returns what to do about it in
// the group. keeper.mu is held.
func (t *sharedTenure) next() (release func()) {
	if !t.closed || !t.kept || t.over || t.held() {
		return func() {}
	}
	t.over = true
	if t.timer != nil {
		t.timer.Stop()
	}
	for _, p := range t.parts {
		t.keeper.lease.remove(p.hold)
	}
	t.done = t.keeper.undoing(t.name)
	t.keeper.sharedOver(t)
	lease := t.keeper.lease
	return func() { lease.client.pursue(t.releaseCommand(lease, t.grant), func(answer) { t.done() }) }
}

// change changes the tenure and does what follows.
func (t *sharedTenure) change(event func()) {
	t.keeper.mu.Lock()
	event()
	release := t.next()
	t.keeper.mu.Unlock()
	release()
}

// left notes that a handle has released its last hold of a tenure that is closed, or that may
// not be kept idle.
func (t *sharedTenure) left() {
	t.change(func() {
		if n := t.keeper.names[t.name]; !t.closed && n != nil && n.abstains() && !t.held() {
			t.close()
		}
	})
}

// ticks is how often a tenure looks whether it is idle, in the time for which it lingers. A
// release does not set a timer: it would take as long as everything else that it does.
const ticks = 8

func (t *sharedTenure) tick() time.Duration { return max(t.stay/ticks, time.Millisecond) }

// ticked closes a tenure that has been idle for long enough.
func (t *sharedTenure) ticked() {
	if t.keeper.lease.Err() != nil {
		return
	}
	t.change(func() {
		if t.over {
			return
		}
		abstains, used := t.keeper.of(t.name).abstains(), false
		for _, p := range t.parts {
			used = p.gate.Used() || used
			p.gate.Watch(abstains)
		}
		now, tick := time.Now(), t.tick()
		switch {
		case used:
			t.idle = time.Time{}
		case t.idle.IsZero():
			t.idle = now.Add(-2 * tick) // at the earliest
		}
		if !t.idle.IsZero() && now.Add(tick).Sub(t.idle) > t.stay && !t.held() {
			t.close()
			return
		}
		t.timer.Reset(tick)
	})
}
