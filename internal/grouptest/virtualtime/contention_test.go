package virtualtime

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// bid is an attempt to have something, and how it ended.
type bid struct {
	at      time.Time
	err     error
	lost    <-chan struct{} // nil with an error, as what follows
	held    func() error    // what the holder is told here, without the network
	release func(context.Context) error
}

// kind is a way of having what only one session can have at a time.
type kind struct {
	name  string
	waits bool // in the group; otherwise a contender has to try again and again
	bid   func(ctx context.Context, s *Session) bid
}

func kinds() []kind {
	return []kind{
		{"lock", true, func(ctx context.Context, s *Session) bid {
			l := s.FencedLock("x")
			_, err := l.Lock(ctx)
			return lockBid(l, err)
		}},
		{"try", false, func(ctx context.Context, s *Session) bid {
			l := s.FencedLock("x")
			_, err := l.TryLock(ctx)
			return lockBid(l, err)
		}},
		{"semaphore", true, func(ctx context.Context, s *Session) bid {
			p, err := s.Semaphore("x", 3).Acquire(ctx, 2)
			if err != nil {
				return bid{err: err}
			}
			return bid{lost: p.Lost(), held: func() error { _, err := p.Fence(); return err }, release: p.Release}
		}},
		{"election", true, func(ctx context.Context, s *Session) bid {
			e := s.Election("x")
			_, err := e.Campaign(ctx, []byte("v"))
			c := lockBid(e.lock, err)
			c.release = e.Resign
			return c
		}},
		{"key", false, func(ctx context.Context, s *Session) bid {
			kv := s.node.KV()
			_, err := kv.Acquire(ctx, "x", []byte("v"), s.ID())
			return bid{err: err, lost: s.Done(), held: s.Err, release: func(ctx context.Context) error {
				_, err := kv.Release(ctx, "x", nil, s.ID())
				return err
			}}
		}},
	}
}

func lockBid(l *FencedLock, err error) bid {
	return bid{err: err, lost: l.Lost(), held: func() error { _, err := l.Fence(); return err }, release: l.Unlock}
}

// pollEvery is how often a contender tries that cannot wait in the group.
const pollEvery = 20 * time.Millisecond

// contest has one session bid what another one holds.
type contest struct {
	*grouptest.Group
	kind           kind
	holder, waiter int // members; one and the same in a group of one
	hs, ws         *Session
	delay          time.Duration // the lock-delay of both sessions
	first          bid
}

// contest begins with the holder's bid, held for a while, so that renewals are
// under way. The leader is the holder, the waiter or the third member.
func newContest(g *grouptest.Group, k kind, leading role, delay time.Duration) *contest {
	g.t.Helper()
	c := &contest{bubbleGroup: g, kind: k, delay: max(delay, 0)}
	c.cast(g.Leader(-1), leading)
	cfg := &SessionConfig{TTL: grouptest.BubbleTTL, LockDelay: delay, Checks: NoChecks}
	c.hs, c.ws = grouptest.MustSession(g.t, g.Nodes[c.holder], cfg), grouptest.MustSession(g.t, g.Nodes[c.waiter], cfg)
	c.first = k.bid(grouptest.Within(g.t, grouptest.BubbleElection), c.hs)
	if c.first.err != nil {
		g.t.Fatal(c.first.err)
	}
	grouptest.Pass(7*time.Second + 41*time.Millisecond)
	return c
}

// role says what else the leader is.
type role int

const (
	third role = iota
	holds
	waits
)

func (c *contest) cast(leader int, leading role) {
	n := len(c.Nodes)
	others := slices.DeleteFunc(allOf(n), func(i int) bool { return i == leader })
	switch {
	case n == 1:
		c.holder, c.waiter = 0, 0
	case leading == holds:
		c.holder, c.waiter = leader, others[0]
	case leading == waits:
		c.holder, c.waiter = others[0], leader
	default:
		c.holder, c.waiter = others[0], others[1]
	}
}

// other is the member that is neither the holder nor the waiter.
func (c *contest) other() int {
	return slices.IndexFunc(c.Nodes, func(n *Node) bool { return n != c.Nodes[c.holder] && n != c.Nodes[c.waiter] })
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	<-time.After(d) // virtual
}

// contend claims for the waiter, and goes on until it has it or something else
// than another's hold is in its way.
func (c *contest) contend(ctx context.Context) <-chan bid {
	result := make(chan bid, 1)
	go func() {
		for {
			got := c.kind.bid(ctx, c.ws)
			got.at = time.Now()
			taken := errors.Is(got.err, ErrLocked) || errors.Is(got.err, ErrLockDelay)
			if c.kind.waits || !taken {
				result <- got
				return
			}
			grouptest.Pass(pollEvery)
		}
	}()
	return result
}

// slack is how much later than by the group's clock a contender of the kind can
// hear of it: the leader looks at each beat, who polls looks when it looks.
func (c *contest) slack() time.Duration {
	if c.kind.waits {
		return grouptest.BubbleHeartbeat
	}
	return grouptest.BubbleHeartbeat + pollEvery
}

// deadline is when a session ends by its process's own clock.
func deadline(s *Session) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.clock.began.Add(time.Duration(s.deadline))
}

// acknowledged is when the last renewal was sent that the session's process has
// heard of: a percent of the TTL is what its clock may be slower than the group's.
func acknowledged(s *Session) time.Time { return deadline(s).Add(-s.ttl + s.ttl/100) }

// awaitLost waits until the first bid is lost, and returns when that was.
func (c *contest) awaitLost() time.Time {
	<-c.first.lost
	return time.Now()
}

// wantBetween checks when something happened.
func wantBetween(t *testing.T, what string, at, from, to time.Time) {
	t.Helper()
	if at.Before(from) || at.After(to) {
		t.Errorf("%s at %v: that is %v after the earliest time and %v before the latest", what, at.Format(time.TimeOnly+".000"), at.Sub(from), to.Sub(at))
	}
}

func wantAt(t *testing.T, what string, at, want time.Time) {
	t.Helper()
	grouptest.WantBetween(t, what, at, want, want)
}

// wantFree checks that a newcomer gets it at once: nobody holds it or waits.
func (c *contest) wantFree(member int) {
	c.t.Helper()
	began := time.Now()
	s := grouptest.MustSession(c.t, c.Nodes[member], &SessionConfig{TTL: grouptest.BubbleTTL, LockDelay: NoLockDelay, Checks: NoChecks})
	got := c.kind.bid(grouptest.Within(c.t, 5*grouptest.BubbleElection), s)
	if got.err != nil {
		c.t.Errorf("it is not free: %v", got.err)
		return
	}
	grouptest.WantBetween(c.t, "a newcomer's bid", time.Now(), began, began.Add(grouptest.BubbleHeartbeat))
}

// wantHeld checks that the first bid is not lost, and can be given back.
func (c *contest) wantHeld() {
	c.t.Helper()
	if err := c.first.held(); err != nil {
		c.t.Errorf("the holder is told %v", err)
	}
	if err := c.first.release(grouptest.Within(c.t, 5*grouptest.BubbleElection)); err != nil {
		c.t.Errorf("giving back: %v", err)
	}
}

// wantLost checks what a holder is told that has lost it, by a bid or by its
// session.
func (c *contest) wantLost() {
	c.t.Helper()
	if err := c.first.held(); !errors.Is(err, ErrLockOwnershipLost) && !errors.Is(err, ErrSessionExpired) && !errors.Is(err, ErrClosed) {
		c.t.Errorf("the holder is told %v", err)
	}
}
