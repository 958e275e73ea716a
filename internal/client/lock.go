package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Lock is a handle to a lock, or to an election, which is a lock with a value. A
// handle is one owner.
type Lock struct {
	client    *Client
	lease     *Lease // what it acquires under; nil: the client's own
	space     wire.Space
	name      string
	number    uint64 // distinguishes the handles of one session
	reentrant bool
	limit     uint32
	maxHold   time.Duration // after which what is granted ends; 0: not by time
	linger    time.Duration // for which a tenure goes on after a release; 0: there is none
	label     string        // for people
	refuse    bool          // a wait that would close a cycle

	order   order
	entries entries
	shares  *shares   // of an RWLock; nil: the lock is only taken exclusively
	parts   *parts    // of a Set; nil: it is one lock
	terms   *jobTerms // of a Run; nil: it is no job

	mu      sync.Mutex
	hold    *Hold  // guarded by mu; nil when nothing is held or owed exclusively
	expired uint64 // guarded by mu; fence of the former exclusive hold if it was lost by its end in time; 0: it was not
}

// LockConfig describes a handle.
type LockConfig struct {
	Lease     *Lease // nil: the client's own, which is opened when it is needed
	Space     wire.Space
	Name      string
	Reentrant bool
	Limit     uint32 // of holds, with Reentrant; 0 is none
	Linger    time.Duration
	MaxHold   time.Duration // 0: none; not with Linger
	Label     string        // is not submitted before the group is at the level for that

	RefuseDeadlock bool // a wait that would close a cycle of sessions is refused; not with Linger
}

// Init makes l a new handle. l must be a zero Lock.
func (l *Lock) Init(c *Client, cfg LockConfig) {
	l.client, l.lease, l.space, l.name = c, cfg.Lease, cfg.Space, cfg.Name
	l.reentrant, l.limit, l.linger, l.label = cfg.Reentrant, cfg.Limit, cfg.Linger, cfg.Label
	l.maxHold, l.refuse = cfg.MaxHold, cfg.RefuseDeadlock
	l.number = c.handles.Add(1)
}

// Acquire acquires the lock and returns its fence. It blocks until the group has
// decided, and with wait until the lock is granted. value is an election's.
//
// A handle under the client's own lease that holds nothing is not affected by the
// end of that lease: its request is repeated under the next one.
func (l *Lock) Acquire(ctx context.Context, wait bool, value []byte, tr *Trace) (fence uint64, err error) {
	if fence, ok := l.acquireHere(ctx); ok {
		return fence, nil
	}
	if err := l.mayRefuse(wait); err != nil {
		return 0, err
	}
	return l.acquire(ctx, wanted{target: l, wait: wait, value: value}, tr)
}

// wanted is what a call acquires.
type wanted struct {
	target
	shared, wait bool
	value        []byte            // of an election
	fresh        bool              // it waits for the end of what the handle has lost, and for its lock-delay
	after        []<-chan struct{} // of shares that were being undone when the call began
}

// inTheWay returns the channel of something that is being undone, and that the request must not overtake; nil: nothing is.
func (l *Lock) inTheWay(w *wanted) (settled <-chan struct{}) {
	for len(w.after) > 0 {
		select {
		case <-w.after[0]:
			w.after = w.after[1:]
		default:
			return w.after[0]
		}
	}
	return l.order.wait()
}

func (l *Lock) acquire(ctx context.Context, w wanted, tr *Trace) (fence uint64, err error) {
	var had *Hold // of the handle, when the call began or later
	for {
		if ctx.Err() != nil {
			return 0, contextFault(Interrupted, ctx)
		}
		entered := l.entries.next(l.reentrant) // before what it has is looked at
		lease, present, err := l.acquireUnder(ctx)
		if had = cmp.Or(present, had); IsKind(err, Expired) && had != nil && !l.wasReleased(had) {
			err = had.loss() // the release that was owed came during the call
		}
		if err != nil {
			return 0, err
		}
		if settled := l.inTheWay(&w); settled != nil {
			if err := lease.await(ctx, settled); err != nil {
				return 0, err
			}
			continue
		}
		own, err := l.inMode(present, w.shared)
		if err != nil {
			return 0, err
		}
		lingers := l.lingers(lease, own, w.shared)
		held := own
		if !l.reentrant || lingers {
			held = nil
		}
		var got uint64
		if lingers {
			got, err = l.acquireLingering(ctx, lease, own, w, tr)
		} else {
			got, err = newAcquisition(w.target, lease).until(entered).run(ctx, l.lockCommand(lease, held, w), tr)
		}
		switch unknown := errors.Is(err, errUnknownSession); {
		case held != nil && isCode(err, wire.Code_OWNERSHIP_LOST) && l.turned(held, w.shared):
			// It was downgraded meanwhile, which is found above.
		case held != nil && (unknown || IsKind(err, Lost) || isCode(err, wire.Code_OWNERSHIP_LOST)):
			if l.has(held) {
				return 0, held.loss()
			}
			// It was released meanwhile, so there was nothing to re-enter.
		case unknown:
			// The session had ended before the request was applied, so nothing was
			// queued.
			lease.end(endedByGroup(), lost)
		case errors.Is(err, errAnotherTenure): // to be requested again
		case errors.Is(err, errOverdue), held == nil && !w.fresh && isCode(err, wire.Code_LIMIT_REACHED, wire.Code_INVALID) && l.mayOutlast():
			w.fresh = true
		case errors.Is(err, errLeaseEnded):
			// acquireUnder finds what that means: a hold that was lost, the end of a
			// fixed lease, or the next lease of the client's own.
		case isCode(err, wire.Code_OWNERSHIP_LOST):
			return 0, &Fault{Kind: Lost}
		default:
			return unlessRefused(got, err)
		}
	}
}

// acquireLingering acquires the lock in a tenure of this process. own is what the handle holds.
func (l *Lock) acquireLingering(ctx context.Context, lease *Lease, own *Hold, w wanted, tr *Trace) (fence uint64, err error) {
	if w.shared {
		return lease.keeper.share(ctx, l.shares, own, w.wait, tr)
	}
	return lease.keeper.acquire(ctx, l, own, w.wait, tr)
}

// mayRefuse returns why the group cannot refuse the wait: below its level a member would queue the request.
func (l *Lock) mayRefuse(wait bool) error {
	if !l.refuse || !wait || l.client.group.Level() >= wire.LevelDeadlock {
		return nil
	}
	return belowLevel("can refuse a deadlock")
}

// belowLevel is the refusal of what not every member can do.
func belowLevel(what string) error {
	return refusal(&wire.Reply{
		Code: wire.Code_LEVEL, Detail: "not every member of the group " + what + ": upgrade all of them, and the group does so a second later",
	})
}

// acquireUnder returns the lease to acquire under, and the handle's hold, if any.
func (l *Lock) acquireUnder(ctx context.Context) (*Lease, *Hold, error) {
	if err := l.client.Usable(); err != nil {
		return nil, nil, err
	}
	if l.maxHold > 0 {
		if err := l.client.hasMaxHold(); err != nil {
			return nil, nil, err
		}
	}
	switch h := l.present(); {
	case h == nil:
		lease, err := l.client.leaseFor(ctx, l.lease)
		return lease, nil, err
	case h.isLost():
		return nil, nil, h.loss()
	default:
		return h.lease, h, nil
	}
}

// present returns a hold of the handle, nil: it has none. All that it has are in one mode.
func (l *Lock) present() *Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil && l.shares != nil {
		return l.shares.last()
	}
	return l.hold
}

// lingers reports whether the handle acquires the lock in a tenure of this process. own is
// what it holds. A lock does not linger before the group is at the level for that, nor under
// a session without TTL: once this process has ended, nothing would end the tenure.
func (l *Lock) lingers(lease *Lease, own *Hold, shared bool) bool {
	if own != nil && (l.reentrant || !shared) {
		return own.in != nil || own.part != nil
	}
	linger := l.linger
	if shared {
		linger = l.shares.linger
	}
	return linger > 0 && lease.ttl != NoTTL && l.client.group.Level() >= wire.LevelLinger
}

// has reports whether the hold is still the handle's, lost or not.
func (l *Lock) has(h *Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold == h || l.shares != nil && l.shares.has(h)
}

// granted implements target.
func (l *Lock) granted(lease *Lease, r *wire.Reply, sent instant) error {
	h := newHold(l.name, lease, grant{fence: r.GetFence()})
	fences, err := l.parts.fencesOf(r)
	if err != nil {
		return err
	}
	h.fences = fences
	h.endAt(lease.bound(l.maxHold, r, sent))
	return l.begin(h, nil)
}

// begin notes a grant, of a tenure of this process or, with none, of the group.
func (l *Lock) begin(h *Hold, in *tenure) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.hold; own != nil && own.lease == h.lease && own.fence == h.fence {
		if own.isOverdue() {
			return own.loss()
		}
		own.count++
		return nil
	}
	switch {
	case l.hold != nil:
		return l.hold.loss() // of an earlier hold, which is still owed
	case l.shares != nil && l.shares.lost():
		return l.shares.last().loss()
	case h.bound != nil && h.fence == l.expired:
		return errOverdue
	}
	h.in = in
	if err := h.lease.add(h); err != nil {
		return err
	}
	l.hold, l.expired = h, 0
	l.entries.note()
	return nil
}

// takeBack implements target. Another call may have downgraded what was granted.
func (l *Lock) takeBack() taken {
	t := l.take()
	if t.hold == nil && l.shares != nil {
		return l.shares.takeBack()
	}
	return t
}

// wasReleased reports whether the hold was released before it was lost, after the end of its lease.
func (l *Lock) wasReleased(h *Hold) bool {
	if h.part != nil {
		return !h.endedWithLease()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return h.released
}

// Release releases one hold. It counts as released from the call on. It blocks until
// the group has agreed or ctx is done; the release is pursued in any case. In a tenure it
// does not block.
func (l *Lock) Release(ctx context.Context, tr *Trace) error {
	return l.releaseTaken(ctx, l.take(), tr)
}

// Fence returns the fence of the current hold. It reads the clock.
func (l *Lock) Fence() (uint64, error) {
	switch h := l.present(); {
	case h == nil:
		return 0, &Fault{Kind: NotHeld}
	case h.isLost():
		return 0, h.loss()
	default:
		return h.now().fence, nil
	}
}

// GrantedFence returns the fence of the current hold, lost or not; 0: nothing is held.
func (l *Lock) GrantedFence() uint64 {
	h := l.present()
	if h == nil {
		return 0
	}
	return h.now().fence
}

// Holds is the number of holds that have not been released, lost ones included.
func (l *Lock) Holds() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	holds := 0
	if l.hold != nil {
		holds = l.hold.count
	}
	if l.shares != nil {
		holds += l.shares.count()
	}
	return holds
}

// Loss is that of the current hold; nil when nothing is held. Any release of a share releases any
// of the handle's, so they are lost together here: with the lease or, if they end in time, when the first
// of them has ended.
func (l *Lock) Loss() *Loss {
	switch h := l.present(); {
	case h == nil:
		return nil
	case h.isShared() && h.bound == nil:
		return &Loss{done: h.lease.done}
	default:
		return h.losing()
	}
}

// IsOwner reports whether r, a refusal or the reply that queued a request, names
// this handle as the owner.
func (l *Lock) IsOwner(r *wire.Reply) bool { return l.IsHolder(r.GetHolder()) }

// IsHolder reports whether a reply that names this holder names this handle.
func (l *Lock) IsHolder(holder *wire.Holder) bool {
	h := l.present()
	return h != nil && l.number == holder.GetHandle() && bytes.Equal(h.lease.id[:], holder.GetSession())
}

// Lost is closed when the current hold is lost; nil when nothing is held.
func (l *Lock) Lost() <-chan struct{} { return l.Loss().Done() }

// Proclaim replaces the value of the election that the handle leads, and returns the fence under which it leads.
func (l *Lock) Proclaim(ctx context.Context, value []byte) (fence uint64, err error) {
	if err := l.client.Usable(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	h := l.hold
	l.mu.Unlock()
	switch {
	case h == nil:
		return 0, &Fault{Kind: NotHeld}
	case h.isLost():
		return 0, &Fault{Kind: Lost}
	}
	bounded, stop := WithLoss(ctx, h.losing().done, leaseEnded) // a lost leader need not wait for a quorum
	defer stop()
	_, err = l.client.Exec(bounded, &wire.Command{Op: &wire.Command_Proclaim{Proclaim: &wire.Proclaim{
		Name: l.name, Session: h.lease.id[:], Handle: l.number, Fence: h.fence, Value: value,
	}}})
	switch {
	case err != nil && ctx.Err() == nil && bounded.Err() != nil:
		return 0, &Fault{Kind: Lost}
	case isCode(err, wire.Code_NOT_HELD, wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION, wire.Code_OWNERSHIP_LOST):
		if l.has(h) {
			return 0, &Fault{Kind: Lost}
		}
		return 0, &Fault{Kind: NotHeld} // it resigned meanwhile
	}
	return unlessRefused(h.fence, err)
}

// undoing implements target.
func (l *Lock) undoing() (done func()) { return l.order.begin() }

func (l *Lock) semaphore() string { return "" }
