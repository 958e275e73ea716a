package conclave_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A deferred Close often gets the context that a signal has cancelled. It still shuts
// down gracefully: another owner gets the lock at once, not after the TTL.
func TestClose_ContextDone(t *testing.T) {
	g := grouptest.Start(t, 3, grouptest.LongElections) // which bound this shutdown
	leader := g.Leader()
	grouptest.MustLock(t, g.Nodes[leader].FencedLock("x"))
	waiting := grouptest.StartLock(t, g.Nodes[(leader+1)%3].FencedLock("x"))
	grouptest.Must(t, g.Nodes[leader].Close(grouptest.Expired()))
	grouptest.Must(t, <-waiting.Err)
}

// orderedListener notes, when it is closed, whether a hold was lost before.
type orderedListener struct {
	net.Listener
	lost   <-chan struct{}
	before chan bool
}

func (l *orderedListener) Close() error {
	select {
	case <-l.lost:
		l.before <- true
	default:
		l.before <- false
	}
	return l.Listener.Close()
}

// A node that stops, however that comes about, ends its leases before it closes a connection: other members may take a
// process for crashed whose connections are closed, and grant at once what it holds.
func TestStop_LeasesEndBeforeConnections(t *testing.T) {
	for name, stop := range map[string]func(*conclave.Node){
		"by itself": grouptest.Kill,
		"in order":  func(n *conclave.Node) { grouptest.Must(t, n.Close(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			c := grouptest.SoloConfig(t)
			inner, err := net.Listen("tcp", c.Bind)
			grouptest.Must(t, err)
			listener := &orderedListener{inner, nil, make(chan bool, 10)}
			c.Listener = listener
			n, err := conclave.Open(t.Context(), &c)
			grouptest.Must(t, err)
			lock := n.FencedLock("x")
			grouptest.MustLock(t, lock)
			listener.lost = lock.Lost()
			stop(n)
			if !<-listener.before {
				t.Error("the listener was closed while the lock was trusted")
			}
		})
	}
}

// lossEvents counts the events of a node.
type lossEvents struct {
	mu    sync.Mutex
	lost  []string
	ended int
}

func (e *lossEvents) events() *conclave.Events {
	return &conclave.Events{
		LockLost: func(name string, _ conclave.Fence) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.lost = append(e.lost, name)
		},
		SessionEnded: func(conclave.SessionID, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.ended++
		},
	}
}

func (e *lossEvents) want(t *testing.T, lost string, ended int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if got := strings.Join(e.lost, " "); got != lost || e.ended != ended {
		t.Errorf("lost %q and %d sessions ended, want %q and %d", got, e.ended, lost, ended)
	}
}

func openWithEvents(t *testing.T) (*conclave.Node, *lossEvents) {
	t.Helper()
	e := new(lossEvents)
	c := grouptest.SoloConfig(t)
	c.Events = e.events()
	n, err := conclave.Open(grouptest.Bounded(t), &c)
	grouptest.Must(t, err)
	return n, e
}

// What a node releases on purpose is not lost.
func TestEvents_LockLostNotOnRelease(t *testing.T) {
	n, e := openWithEvents(t)
	unlocked, s := n.FencedLock("unlocked"), grouptest.MustSession(t, n, nil)
	grouptest.MustLock(t, unlocked)
	grouptest.MustUnlock(t, unlocked)
	grouptest.MustLock(t, s.FencedLock("session closed"))
	grouptest.Must(t, s.Close(t.Context()))
	grouptest.MustLock(t, n.FencedLock("node closed"))
	grouptest.Must(t, n.Close(t.Context()))
	e.want(t, "", 2)
}

func TestEvents_LockLostOnForcedClose(t *testing.T) {
	n, e := openWithEvents(t)
	s := grouptest.MustSession(t, n, nil)
	l := s.FencedLock("forced")
	grouptest.MustLock(t, l)
	lost := l.Lost()
	grouptest.Must(t, n.CloseSession(t.Context(), s.ID()))
	<-lost
	grouptest.Must(t, n.Close(t.Context()))
	e.want(t, "forced", 1)
}

func TestTransferLeadership_AskedOnFollower(t *testing.T) {
	g := grouptest.Start(t, 3)
	leader := g.Leader()
	follower, target := g.Nodes[(leader+1)%3], (leader+2)%3
	g.MustTransfer(follower, target)
	err := follower.TransferLeadership(grouptest.Bounded(t), 99)
	grouptest.WantError(t, err, conclave.ErrInvalid)
}

// A caller that gives up learns what it has waited for.
func TestLock_ContextErrorNamesHolder(t *testing.T) {
	n := grouptest.Alone(t)
	holder := grouptest.MustSession(t, n, nil)
	grouptest.MustLock(t, holder.FencedLock("x"))
	waiting := grouptest.StartLock(t, n.FencedLock("x"))
	waiting.Cancel()
	err := <-waiting.Err
	grouptest.WantError(t, err, context.Canceled)
	for _, part := range []string{"position 1", holder.ID().String(), n.Status().ID.String(), "with fence 1"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	_, err = n.FencedLock("x").TryLock(t.Context())
	grouptest.WantError(t, err, conclave.ErrLocked)
	if !strings.Contains(err.Error(), holder.ID().String()) {
		t.Errorf("the error does not name the holder: %v", err)
	}
}

func TestLock_ErrorNamesOwnHandle(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		l := n.FencedLock("x")
		grouptest.MustLock(t, l)
		_, err := l.TryLock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLocked)
		waiting := grouptest.StartLock(t, l)
		waiting.Cancel()
		for _, err := range []error{err, <-waiting.Err} {
			if !strings.Contains(err.Error(), "held by this handle: use Reentrant") {
				t.Errorf("the error does not name the handle: %v", err)
			}
		}
	})
}

func TestSemaphore_ErrorDoesNotNameOwner(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Semaphore("x", 2)
		grouptest.MustAcquire(t, s, 2)
		_, err := s.TryAcquire(t.Context(), 1)
		grouptest.WantError(t, err, conclave.ErrLocked)
		if !strings.Contains(err.Error(), "not enough permits") {
			t.Error(err)
		}
	})
}

func TestNewSession_ErrorNamesCheck(t *testing.T) {
	n := grouptest.Alone(t)
	_, err := n.NewSession(t.Context(), &conclave.SessionConfig{Checks: []string{"gossip", "no such check"}})
	grouptest.WantError(t, err, conclave.ErrInvalid)
	if !strings.Contains(err.Error(), `"no such check"`) {
		t.Error(err)
	}
}

func TestSemaphore_Do(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Semaphore("x", 2)
		failure := errors.New("failed")
		err := s.Do(t.Context(), 2, func(ctx context.Context, fence conclave.Fence) error {
			info := grouptest.SemaphoreInfo(t, s)
			f, ok := conclave.FenceFromContext(ctx)
			if len(info.Holders) != 1 || !ok || info.Holders[0].Fence != f || fence != f || info.Available != 0 {
				t.Errorf("fence %v, %v in the context, and the semaphore is %+v", fence, f, info)
			}
			return failure
		})
		if err != failure { //nolint:errorlint // as it is
			t.Error(err)
		}
		if info := grouptest.SemaphoreInfo(t, s); info.Available != 2 {
			t.Errorf("the permits were not released: %+v", info)
		}
	})
}

func TestSemaphore_DoLost(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		session := grouptest.MustSession(t, n, nil)
		err := session.Semaphore("x", 1).Do(t.Context(), 1, func(ctx context.Context, _ conclave.Fence) error {
			grouptest.Must(t, n.CloseSession(t.Context(), session.ID()))
			<-ctx.Done()
			return context.Cause(ctx)
		})
		grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
	})
}

func TestDoAndRun_FenceInContext(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		l := n.FencedLock("x")
		grouptest.Must(t, l.Do(t.Context(), func(ctx context.Context, fence conclave.Fence) error {
			want, err := l.Fence()
			if f, ok := conclave.FenceFromContext(ctx); !ok || f != want || fence != want {
				t.Errorf("got %v, and %v in the context, want %v", fence, f, want)
			}
			return err
		}))
		grouptest.Must(t, n.Election("x").Run(t.Context(), nil, func(ctx context.Context, want conclave.Fence) error {
			if f, ok := conclave.FenceFromContext(ctx); !ok || f != want {
				t.Errorf("got %v, want %v", f, want)
			}
			return nil
		}))
	})
}

// Calls of holders after Close: what the group would decide returns ErrClosed, and what is released or looked at here is lost.
func TestClose_Holders(t *testing.T) {
	for _, kind := range []string{"node", "client"} {
		t.Run(kind, func(t *testing.T) {
			ctx, n := grouptest.Bounded(t), grouptest.Alone(t)
			g, end := n.Group, n.Close
			if kind == "client" {
				c := grouptest.Dial(t, new(conclave.ClientConfig), n)
				g, end = c.Group, c.Close
			}
			hour := conclave.MaxHold(time.Hour)
			l, shared, set := g.FencedLock("lock", hour), g.RWLock("shared", hour), g.LockSet([]string{"a", "b"}, hour)
			grouptest.MustLock(t, l)
			_, err := shared.RLock(ctx)
			grouptest.Must(t, err)
			_, err = set.Lock(ctx)
			grouptest.Must(t, err)
			led := g.Election("election")
			grouptest.MustCampaign(t, led, "")
			p := grouptest.MustAcquire(t, g.Semaphore("permits", 1).WithMaxHold(time.Hour), 1)
			grouptest.Must(t, end(ctx))

			for _, extend := range []func(context.Context, time.Duration) error{l.Extend, shared.Extend, set.Extend, p.Extend} {
				grouptest.WantError(t, extend(ctx, time.Hour), conclave.ErrClosed)
			}
			_, err = led.Campaign(ctx, nil)
			grouptest.WantError(t, err, conclave.ErrClosed)
			grouptest.WantError(t, led.Proclaim(ctx, nil), conclave.ErrClosed)
			grouptest.WantError(t, led.Run(ctx, nil, func(context.Context, conclave.Fence) error { return nil }), conclave.ErrClosed)
			for _, release := range []func(context.Context) error{l.Unlock, shared.RUnlock, set.Unlock, led.Resign, p.Release} {
				grouptest.WantError(t, release(ctx), conclave.ErrLockOwnershipLost)
			}
		})
	}
}
