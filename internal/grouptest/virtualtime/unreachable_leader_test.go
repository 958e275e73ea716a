package virtualtime

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A member that reaches a majority, but not the leader, names the leader that it cannot
// reach.
func TestUnavailable_NamesUnreachableLeader(t *testing.T) {
	t.Parallel()
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		x, other := (leader+1)%3, (leader+2)%3
		g.Net.Partition(leader, x)
		pass(20 * time.Second) // until the connections are found dead
		if now := g.Nodes[other].Status().Leader; now != g.Nodes[leader].Status().ID {
			g.T.Fatalf("the leader is %v", now)
		}
		_, lockErr := g.Nodes[x].FencedLock("x").Lock(grouptest.Within(g.T, time.Second))
		_, readErr := g.Nodes[x].KV().Get(grouptest.Within(g.T, time.Second), "k")
		for _, err := range []error{lockErr, readErr} {
			grouptest.WantError(g.T, err, conclave.ErrUnavailable)
			for _, want := range []string{g.Nodes[leader].Status().ID.String(), g.Configs[leader].Name, "reaches 2 of 3 voters"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					g.T.Errorf("%v does not contain %q", err, want)
				}
			}
		}
		g.Net.Heal(leader, x)
		grouptest.MustLock(g.T, g.Nodes[x].FencedLock("x"))
	})
}

// A network that is cut in one direction only: the leader does not reach a member, which reaches it. The leader has a
// warning, and the member says where the fault is.
func TestUnavailable_NamesOneWayCut(t *testing.T) {
	t.Parallel()
	logs, all := journals(3)
	var f firewall
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		x := (leader + 1) % 3
		const line = `level=WARN msg="a member reaches this one and is not reached" member=`
		for i := range all {
			if found := lines(g.T, all[i], 0, line); len(found) > 0 {
				g.T.Error(found)
			}
		}
		f.protect(g.Configs[x].Bind, leader)
		g.Net.Reset(x)
		pass(20 * time.Second)
		if now := g.Nodes[(leader+2)%3].Status().Leader; now != g.ID(leader) {
			g.T.Fatalf("the leader is %v", now)
		}
		if found := lines(g.T, all[leader], 0, line+g.ID(x).String()); len(found) != 1 || !strings.Contains(found[0], "check the firewall") {
			g.T.Errorf("the leader logs %q", found)
		}
		failed, texts := grouptest.FailedChecks(g.Nodes[x])
		for _, want := range []string{"the leader, member " + g.ID(leader).String() + " (" + g.Configs[leader].Name, "does not reach this member at " + g.Configs[x].Bind, "check the firewall"} {
			if failed != "leader" || !strings.Contains(texts, want) {
				g.T.Errorf("%s: %s; want %s", failed, texts, want)
			}
		}
		f.protect("")
		grouptest.AwaitHealth(g.T, g.Nodes[x], "")
		if why := g.Member(x).Unreachable(); why != "" {
			g.T.Errorf("healed: %s", why)
		}
	}, logs, f.option())
}

// The others cannot reach the leader any more and elect another one. It reaches all of them.
func TestUnavailable_NamesOneWayCutOfFormerLeader(t *testing.T) {
	t.Parallel()
	var f firewall
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		former := g.Leader()
		f.protect(g.Configs[former].Bind, g.Others(former)...)
		g.Net.Reset(former)
		pass(30 * time.Second)
		failed, texts := grouptest.FailedChecks(g.Nodes[former])
		if want := "does not reach this member at " + g.Configs[former].Bind; failed != "leader" || !strings.Contains(texts, want) {
			g.T.Errorf("%s: %s; want %s", failed, texts, want)
		}
	}, f.option())
}

// A machine that was installed again lets nothing in.
func TestUnavailable_NamesOneWayCutAtStart(t *testing.T) {
	t.Parallel()
	var f firewall
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		x := (g.Leader() + 1) % 3
		g.Kill(x)
		f.protect(g.Configs[x].Bind, g.Others(x)...)
		_, err := g.Open(x, time.Minute)
		grouptest.WantError(g.T, err, conclave.ErrUnavailable)
		if want := "does not reach this member at " + g.Configs[x].Bind; err == nil || !strings.Contains(err.Error(), want) {
			g.T.Errorf("%v; want %s", err, want)
		}
	}, f.option())
}

// firewall drops what some members send to an address when they connect.
type firewall struct {
	mu   sync.Mutex
	at   string // guarded by mu; "": none
	from []int  // guarded by mu
}

func (f *firewall) protect(addr string, from ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.from = addr, from
}

func (f *firewall) drops(from int, addr string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return addr == f.at && slices.Contains(f.from, from)
}

func (f *firewall) option() grouptest.Option {
	return grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if f.drops(i, addr) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx, addr)
		}
	})
}
