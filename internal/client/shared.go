package client

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// RWLock is a handle to a lock that takes it exclusively, as a Lock does, or shared. With
// Reentrant it is one owner in both modes. Otherwise each acquisition of its shared mode is a
// hold of its own, and a release releases any of them: they have one fence.
type RWLock struct {
	Lock
	shares shares
}

// Init makes l a new handle. l must be a zero RWLock.
func (l *RWLock) Init(c *Client, cfg LockConfig) {
	l.shares.lock, l.shares.linger = &l.Lock, cfg.Linger
	cfg.Linger = 0 // an idle writer would keep readers waiting
	l.Lock.Init(c, cfg)
	l.Lock.shares = &l.shares
}

// Acquire acquires the lock exclusively, as [Lock.Acquire] does. The handle's shares that are being released would be in
// the way, so it waits for them first.
func (l *RWLock) Acquire(ctx context.Context, wait bool, tr *Trace) (fence uint64, err error) {
	if err := l.mayRefuse(wait); err != nil {
		return 0, err
	}
	return l.acquire(ctx, wanted{target: &l.Lock, wait: wait, after: l.shares.releases.underWay()}, tr)
}

// AcquireShared acquires the lock shared, and is otherwise like Acquire.
func (l *RWLock) AcquireShared(ctx context.Context, wait bool, tr *Trace) (fence uint64, err error) {
	if err := l.client.hasShared(); err != nil {
		return 0, err
	}
	if fence, ok := l.shares.acquireHere(ctx); ok {
		return fence, nil
	}
	if err := l.mayRefuse(wait); err != nil {
		return 0, err
	}
	return l.acquire(ctx, wanted{target: &l.shares, shared: true, wait: wait}, tr)
}

// hasShared returns why the group does not know the shared mode: below its level a member would
// take a request for one for an exclusive one.
func (c *Client) hasShared() error {
	if c.group.Level() >= wire.LevelShared {
		return nil
	}
	return belowLevel("knows the shared mode of locks")
}

// ReleaseShared releases one shared hold, as Release does an exclusive one.
func (l *RWLock) ReleaseShared(ctx context.Context, tr *Trace) error {
	if released, err := l.shares.releaseHere(); released {
		return err
	}
	return l.releaseTaken(ctx, l.shares.takeBack(), tr)
}

// inMode returns what a handle holds in a mode, given what it holds.
func (l *Lock) inMode(h *Hold, shared bool) (*Hold, error) {
	switch {
	case h == nil || h.isShared() == shared:
		return h, nil
	case !l.reentrant:
		return nil, nil
	case shared:
		return nil, &Fault{Kind: OtherMode, Detail: "the handle holds the lock exclusively: call Downgrade"}
	default:
		return nil, &Fault{Kind: OtherMode, Detail: "the handle holds the lock shared, and there is no upgrade, " +
			"as two handles that upgrade would wait for each other: release it first"}
	}
}

// shares is the shared mode of a handle.
type shares struct {
	lock     *Lock
	holds    []*Hold // guarded by mu of the lock; under one lease, as the parts
	releases undoings
	either   int // guarded by mu of the lock; so many releases of callers that do not know which mode they have

	linger  time.Duration        // for which a tenure goes on when nothing is held; 0: there is none
	parts   []*part              // guarded by mu of the lock; of tenures, in their order
	here    atomic.Pointer[part] // the last of them; nil: there was none
	several atomic.Bool          // there are others
}

// last returns a hold, nil: there is none. mu of the lock is held.
//
// Of holds that end in time it is the one that ends first. All are alike, and each release releases this
// one, so that none of those that remain ends earlier than its caller has to expect.
func (s *shares) last() *Hold {
	if len(s.holds) == 0 {
		return s.partHold()
	}
	last := s.holds[len(s.holds)-1]
	if last.bound == nil {
		return last
	}
	return slices.MinFunc(s.holds, func(a, b *Hold) int { return cmp.Compare(a.bound.until.Load(), b.bound.until.Load()) })
}

// lost reports whether there are holds that were lost. mu of the lock is held.
func (s *shares) lost() bool {
	h := s.last()
	return h != nil && h.isLost()
}

// has reports whether a hold is the handle's. mu of the lock is held.
func (s *shares) has(h *Hold) bool {
	if h.part != nil {
		return h.part.gate.Holds() > 0
	}
	return slices.Contains(s.holds, h)
}

// count is the number of holds, each as often as it was acquired. mu of the lock is held.
func (s *shares) count() (n int) {
	for _, h := range s.holds {
		n += h.count
	}
	for _, p := range s.parts {
		n += p.gate.Holds()
	}
	return n
}

// remove takes out a hold. mu of the lock is held.
func (s *shares) remove(h *Hold) {
	at := slices.Index(s.holds, h)
	last := len(s.holds) - 1
	s.holds[at], s.holds[last] = s.holds[last], nil
	s.holds = s.holds[:last]
	s.goOn()
}

// granted implements target.
func (s *shares) granted(lease *Lease, r *wire.Reply, sent instant) error {
	l, g := s.lock, grantOf(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch { // of an earlier hold, which is still owed
	case s.lost():
		return s.last().loss()
	case l.hold != nil && l.hold.isLost():
		return l.hold.loss()
	}
	if l.reentrant && l.limit != 0 && s.count() >= int(l.limit) { // by calls that were under way together
		return refusal(&wire.Reply{Code: wire.Code_LIMIT_REACHED})
	}
	if at := slices.IndexFunc(s.holds, func(h *Hold) bool { return h.lease == lease && h.now().share == g.share }); l.reentrant && at >= 0 {
		s.holds[at].count++
		return nil
	}
	h := newHold(l.name, lease, g)
	if h.endAt(lease.bound(l.maxHold, r, sent)); h.bound != nil && len(s.holds) > 0 {
		h.lost = s.holds[0].losing()
	}
	if err := lease.add(h); err != nil {
		return err
	}
	s.holds = append(s.holds, h)
	l.entries.note()
	return nil
}

// lostWith notes that a hold which ends in time is about to join the others. mu of the lock is held.
func (s *shares) lostWith(h *Hold) {
	if h.bound == nil || len(s.holds) == 0 {
		return
	}
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	with := s.holds[0].lost
	for with.also != nil {
		with = with.also
	}
	if with.also = h.lost; with.closed {
		h.lost.close(with.overdue)
	}
	h.lost = s.holds[0].lost
}

// goOn gives holds that end in time another loss, once those that were lost have been released. mu of the lock is held.
func (s *shares) goOn() {
	if len(s.holds) == 0 || s.holds[0].bound == nil {
		return
	}
	lease := s.holds[0].lease
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if !s.holds[0].lost.closed || lease.err != nil || slices.ContainsFunc(s.holds, func(h *Hold) bool { return h.bound.overdue }) {
		return
	}
	fresh := newLoss()
	for _, h := range s.holds {
		h.lost = fresh
	}
}

// takeBack implements target: it takes off any of the holds, or of the exclusive hold that may
// have turned into a share.
func (s *shares) takeBack() taken {
	s.lock.mu.Lock()
	defer s.lock.mu.Unlock()
	if h := s.lock.hold; h != nil && s.last() == nil && h.turning.mayHaveTurned() {
		return s.lock.takeOf(h)
	}
	return s.take()
}

// take takes off any of the holds. mu of the lock is held.
func (s *shares) take() (t taken) {
	if p, last := s.takePart(); p != nil {
		t = taken{hold: p.hold, lost: p.hold.isLost(), last: last}
	} else if h := s.last(); h != nil {
		t = s.lock.takeOf(h)
	}
	if s.last() == nil {
		s.either = 0
	}
	return t
}

func (s *shares) semaphore() string { return "" }

func (s *shares) job() string { return "" }

// releaseCommand implements target.
func (s *shares) releaseCommand(lease *Lease, g grant) *wire.Command {
	return s.lock.releaseCommand(lease, g)
}

// undoing implements target.
func (s *shares) undoing() (done func()) { return s.releases.begin() }

// undoings are the releases and withdrawals of shares that are under way. A request for a share
// waits for none of them, as a share is not in the way of another one. A request for the lock
// waits for those that began before it: the next ones may never end.
type undoings struct {
	mu    sync.Mutex
	under map[chan struct{}]struct{} // guarded by mu
}

// begin notes one, until done is called.
func (u *undoings) begin() (done func()) {
	settled := make(chan struct{})
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.under == nil {
		u.under = make(map[chan struct{}]struct{})
	}
	u.under[settled] = struct{}{}
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if _, first := u.under[settled]; first {
			delete(u.under, settled)
			close(settled)
		}
	}
}

// underWay returns a channel for each, which is closed when it has ended.
func (u *undoings) underWay() (all []<-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for settled := range u.under { // order: all are waited for
		all = append(all, settled)
	}
	return all
}
