package virtualtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// pods is a group whose members run as pods do: each start has another address, and all of
// them have one name in Join, which stands for the addresses of those that are up. Nothing
// answers at an address that a pod has left, not even with a refusal.
type pods struct {
	*membership
	names   grouptest.NameService
	started atomic.Int64 // counts the addresses given
}

const service = "conclave.svc"

// inPods runs a test with so many pods, of which none is started. Each expects so many
// founders, all of which vote.
func inPods(t *testing.T, n, founders int, test func(p *pods), opts ...grouptest.Option) {
	t.Helper()
	p := new(pods)
	pod := grouptest.Edit(func(_ int, c *conclave.Config, s *cluster.Seams) {
		c.Join, c.Expect, c.Voters, c.Insecure = []string{service + ":7000"}, founders, founders, true
		dial := c.Dial
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := dial(ctx, p.resolve(ctx, addr))
			if errors.Is(err, syscall.ECONNREFUSED) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return conn, err
		}
		s.Lookup = p.names.Lookup
	})
	inMembershipBubble(t, n, func(g *membership) {
		p.membership = g
		test(p)
	}, append([]grouptest.Option{grouptest.Newcomers(n), pod}, opts...)...)
}

// resolve returns an address with the host's first IP address in place of its name.
func (p *pods) resolve(ctx context.Context, addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	if ips, err := p.names.Lookup(ctx, host); err == nil {
		return net.JoinHostPort(ips[0].String(), port)
	}
	return addr
}

// move gives pods other addresses for their next start.
func (p *pods) move(members ...int) {
	for _, i := range members {
		p.Configs[i].Bind = fmt.Sprintf("127.1.0.%d:7000", p.started.Add(1))
	}
}

// publish makes the name stand for the addresses of pods.
func (p *pods) publish(members ...int) {
	for _, i := range members {
		p.names.Add(service, p.Configs[i].Bind)
	}
}

// withdraw undoes publish.
func (p *pods) withdraw(members ...int) {
	for _, i := range members {
		p.names.Remove(service, p.Configs[i].Bind)
	}
}

// form starts the group.
func (p *pods) form(members ...int) {
	p.T.Helper()
	p.move(members...)
	p.publish(members...)
	p.Start(members...)
	p.awaitVoters(len(members), 0)
}

// lockUser takes and releases one lock all the time, on one pod after another.
type lockUser struct {
	t     testing.TB
	mu    sync.Mutex
	node  *conclave.Node // guarded by mu; which it uses
	stop  context.CancelFunc
	done  sync.WaitGroup
	fence conclave.Fence // of its last grant; read after end
	count int            // of its grants; read after end
	slow  time.Duration  // its longest grant; read after end
}

// useLock starts a lockUser. A call may be retried for a minute.
func useLock(t testing.TB, node *conclave.Node) *lockUser {
	ctx, stop := context.WithCancel(t.Context())
	u := &lockUser{t: t, node: node, stop: stop}
	u.done.Go(func() {
		for ctx.Err() == nil {
			u.use()
			pass(20 * time.Millisecond)
		}
	})
	t.Cleanup(u.end)
	return u
}

func (u *lockUser) end() {
	u.stop()
	u.done.Wait()
}

// move makes it use another node from its next call on.
func (u *lockUser) move(node *conclave.Node) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.node = node
}

func (u *lockUser) current() *conclave.Node {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.node
}

// use takes the lock once and releases it. Errors that allow a retry are retried.
func (u *lockUser) use() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	began := time.Now()
	for {
		lock := u.current().FencedLock("rollout")
		fence, err := lock.Lock(ctx)
		if err == nil {
			if fence <= u.fence {
				u.t.Errorf("fence %v after %v", fence, u.fence)
			}
			u.fence, u.count, u.slow = fence, u.count+1, max(u.slow, time.Since(began))
			err = lock.Unlock(ctx)
		}
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			u.t.Errorf("no grant within a minute: %v", err)
			return
		case errors.Is(err, conclave.ErrClosed), errors.Is(err, conclave.ErrUnknown), errors.Is(err, conclave.ErrUnavailable),
			errors.Is(err, conclave.ErrBusy), errors.Is(err, conclave.ErrLockOwnershipLost), errors.Is(err, conclave.ErrSessionExpired):
			pass(10 * time.Millisecond)
		default:
			u.t.Errorf("an error that is not for a retry: %v", err)
			return
		}
	}
}
