package virtualtime

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// attempt is the result of an attempt to acquire something.
type attempt struct {
	at      time.Time
	err     error
	lost    <-chan struct{} // nil after an error, as what follows
	held    func() error    // nil while the holder's process has not lost it; local
	release func(context.Context) error
}

// kind is a kind of exclusive ownership.
type kind struct {
	name    string
	queues  bool // in the group; otherwise a contender polls
	acquire acquire
	contend acquire // that is excluded by the former; nil: the same
}

type acquire func(ctx context.Context, n *conclave.Node, s *conclave.Session) attempt

// exclusively and shared acquire the lock in its two modes.
func exclusively(ctx context.Context, _ *conclave.Node, s *conclave.Session) attempt {
	l := s.RWLock("x")
	_, err := l.Lock(ctx)
	return attempt{err: err, lost: l.Lost(), held: func() error { _, err := l.Fence(); return err }, release: l.Unlock}
}

func shared(ctx context.Context, _ *conclave.Node, s *conclave.Session) attempt {
	l := s.RWLock("x")
	_, err := l.RLock(ctx)
	return attempt{err: err, lost: l.Lost(), held: func() error { _, err := l.Fence(); return err }, release: l.RUnlock}
}

// wholly acquires the lock as one of a set.
func wholly(ctx context.Context, _ *conclave.Node, s *conclave.Session) attempt {
	l := s.LockSet([]string{"w", "x"}, conclave.Shared("y"))
	_, err := l.Lock(ctx)
	return attempt{err: err, lost: l.Lost(), held: func() error { _, err := l.FenceOf("x"); return err }, release: l.Unlock}
}

func kinds() []kind {
	return []kind{
		{"lock", true, func(ctx context.Context, _ *conclave.Node, s *conclave.Session) attempt {
			l := s.FencedLock("x")
			_, err := l.Lock(ctx)
			return lockAttempt(l, err)
		}, nil},
		{"try lock", false, func(ctx context.Context, _ *conclave.Node, s *conclave.Session) attempt {
			l := s.FencedLock("x")
			_, err := l.TryLock(ctx)
			return lockAttempt(l, err)
		}, nil},
		{"writer before a reader", true, exclusively, shared},
		{"reader before a writer", true, shared, exclusively},
		{"set", true, wholly, nil},
		{"lock before a set", true, exclusively, wholly},
		{"semaphore", true, func(ctx context.Context, _ *conclave.Node, s *conclave.Session) attempt {
			p, err := s.Semaphore("x", 3).Acquire(ctx, 2)
			if err != nil {
				return attempt{err: err}
			}
			return attempt{lost: p.Lost(), held: func() error { _, err := p.Fence(); return err }, release: p.Release}
		}, nil},
		{"election", true, func(ctx context.Context, _ *conclave.Node, s *conclave.Session) attempt {
			e := s.Election("x")
			_, err := e.Campaign(ctx, []byte("v"))
			lost := e.Lost()
			return attempt{err: err, lost: lost, release: e.Resign, held: func() error {
				select {
				case <-lost:
					return conclave.ErrLockOwnershipLost
				default:
					return nil
				}
			}}
		}, nil},
		{"key", false, func(ctx context.Context, n *conclave.Node, s *conclave.Session) attempt {
			kv := n.KV()
			_, err := kv.Acquire(ctx, "x", []byte("v"), s.ID())
			return attempt{err: err, lost: s.Done(), held: s.Err, release: func(ctx context.Context) error {
				_, err := kv.Release(ctx, "x", nil, s.ID())
				return err
			}}
		}, nil},
	}
}

func lockAttempt(l *conclave.FencedLock, err error) attempt {
	return attempt{err: err, lost: l.Lost(), held: func() error { _, err := l.Fence(); return err }, release: l.Unlock}
}

// pollInterval is how often a contender tries that cannot queue.
const pollInterval = 20 * time.Millisecond

// contention is one session that holds what another one wants.
type contention struct {
	*grouptest.Group
	kind           kind
	holder, waiter int // members; the same one in a group of one
	holderSession  *conclave.Session
	waiterSession  *conclave.Session
	delay          time.Duration // the lock-delay of both sessions
	held           attempt       // the holder's
}

// leaderRole says which member of a contention leads the group.
type leaderRole int

const (
	leaderIsThird leaderRole = iota
	leaderHolds
	leaderWaits
)

// newContention makes the holder acquire and hold for a while, so that its session is
// being renewed.
func newContention(g *grouptest.Group, k kind, role leaderRole, delay time.Duration) *contention {
	g.T.Helper()
	c := &contention{Group: g, kind: k, delay: max(delay, 0)}
	c.assign(g.Leader(), role)
	cfg := &conclave.SessionConfig{TTL: ttl, LockDelay: delay, NoChecks: true}
	c.holderSession = grouptest.MustSession(g.T, g.Nodes[c.holder], cfg)
	c.waiterSession = grouptest.MustSession(g.T, g.Nodes[c.waiter], cfg)
	c.held = k.acquire(grouptest.Within(g.T, election), g.Nodes[c.holder], c.holderSession)
	grouptest.Must(g.T, c.held.err)
	pass(7*time.Second + 41*time.Millisecond)
	return c
}

func (c *contention) assign(leader int, role leaderRole) {
	others := c.Others(leader)
	switch {
	case len(others) == 0:
		c.holder, c.waiter = 0, 0
	case role == leaderHolds:
		c.holder, c.waiter = leader, others[0]
	case role == leaderWaits:
		c.holder, c.waiter = others[0], leader
	default:
		c.holder, c.waiter = others[0], others[1]
	}
}

// third is the member that is neither the holder nor the waiter.
func (c *contention) third() int {
	return slices.IndexFunc(c.All(), func(i int) bool { return i != c.holder && i != c.waiter })
}

// contend makes the waiter try until it succeeds, or fails for another reason than the
// hold.
func (c *contention) contend(ctx context.Context) <-chan attempt {
	result := make(chan attempt, 1)
	n, acquire := c.Nodes[c.waiter], c.kind.contend
	if acquire == nil {
		acquire = c.kind.acquire
	}
	go func() {
		for {
			got := acquire(ctx, n, c.waiterSession)
			got.at = time.Now()
			taken := errors.Is(got.err, conclave.ErrLocked) || errors.Is(got.err, conclave.ErrLockDelay)
			if c.kind.queues || !taken {
				result <- got
				return
			}
			pass(pollInterval)
		}
	}()
	return result
}

// slack is how much later than by the group's clock a contender can get to know:
// the leader acts at each heartbeat, a polling contender at each poll.
func (c *contention) slack() time.Duration {
	if c.kind.queues {
		return heartbeat
	}
	return heartbeat + pollInterval
}

// renew renews the holder's session and returns when the acknowledged renewal was
// sent. Until the next automatic renewal the session's deadlines count from then.
func (c *contention) renew() (sent time.Time) {
	c.T.Helper()
	sent = time.Now()
	grouptest.Must(c.T, c.holderSession.Renew(grouptest.Within(c.T, election)))
	return sent
}

// awaitLost waits until the holder learns of its loss, and returns when that was.
func (c *contention) awaitLost() time.Time {
	<-c.held.lost
	return time.Now()
}

// wantFree checks that another session acquires at once: nothing holds or waits.
func (c *contention) wantFree(member int) {
	c.T.Helper()
	began := time.Now()
	n := c.Nodes[member]
	s := grouptest.MustSession(c.T, n, &conclave.SessionConfig{TTL: ttl, LockDelay: conclave.NoLockDelay, NoChecks: true})
	acquire := c.kind.acquire
	if c.kind.contend != nil {
		acquire = exclusively // beside a reader that is left, another one would acquire as well
	}
	got := acquire(grouptest.Within(c.T, 5*election), n, s)
	if got.err != nil {
		c.T.Errorf("it is not free: %v", got.err)
		return
	}
	wantBetween(c.T, "a new session's acquisition", time.Now(), began, began.Add(heartbeat))
}

// wantReleasable checks that the holder has not lost it, and can release it.
func (c *contention) wantReleasable() {
	c.T.Helper()
	if err := c.held.held(); err != nil {
		c.T.Errorf("the holder has lost it: %v", err)
	}
	if err := c.held.release(grouptest.Within(c.T, 5*election)); err != nil {
		c.T.Errorf("release: %v", err)
	}
}

// wantLost checks that the holder's process knows of its loss, by what it held or by
// its session.
func (c *contention) wantLost() {
	c.T.Helper()
	err := c.held.held()
	for _, want := range []error{conclave.ErrLockOwnershipLost, conclave.ErrSessionExpired, conclave.ErrClosed} {
		if errors.Is(err, want) {
			return
		}
	}
	c.T.Errorf("the former holder gets %v; want a loss", err)
}
