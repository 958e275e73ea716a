//go:build unix

package patronitest

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"
)

var (
	rounds = flag.Int("rounds", 1, "how often each scenario runs")
	all    = flag.Bool("all", false, "run all scenarios, and with a short TTL too")
)

const (
	// longest is how long no node may accept writes. It is some leases: each change of the agents' leader renews one.
	longest = 4 * time.Minute
	// patience is how long the test waits for what must come within longest, and then some for the replicas.
	patience = 6 * time.Minute
)

// scenarios are what happens to a cluster whose primary is node p.
var scenarios = []struct {
	name  string
	short bool // it is in the short form
	run   func(c *cluster, p int)
}{
	{"node killed", true, func(c *cluster, p int) {
		c.killNode(p)
		c.awaitOther(p)
		c.startNode(p)
	}},
	{"agent of the primary killed", false, func(c *cluster, p int) {
		c.agents[p].end(syscall.SIGKILL)
		c.awaitOther(p)
		c.startAgent(p)
	}},
	{"agent of the primary stopped", false, func(c *cluster, p int) {
		_ = syscall.Kill(-c.agents[p].cmd.Process.Pid, syscall.SIGSTOP)
		c.awaitOther(p)
		_ = syscall.Kill(-c.agents[p].cmd.Process.Pid, syscall.SIGCONT)
	}},
	{"each agent restarted in turn", true, func(c *cluster, _ int) {
		for i := range size {
			c.agents[i].end(syscall.SIGTERM)
			c.startAgent(i)
			c.awaitReplicas()
		}
	}},
	{"switchover", false, func(c *cluster, p int) {
		to := (p + 1) % size
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		defer cancel()
		order := map[string]string{"leader": fmt.Sprint("node", p), "candidate": fmt.Sprint("node", to)}
		if status, answer := c.request(ctx, p, http.MethodPost, "/switchover", order); status != http.StatusOK {
			c.t.Fatalf("switchover: %d %v", status, answer)
		}
		c.awaitOther(p)
	}},
	{"ttl changed", false, func(c *cluster, p int) {
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		defer cancel()
		if status, answer := c.request(ctx, p, http.MethodPatch, "/config", map[string]int{"ttl": c.ttl + 10}); status != http.StatusOK {
			c.t.Fatalf("ttl: %d %v", status, answer)
		}
		c.killNode(p)
		c.awaitOther(p)
		c.startNode(p)
	}},
}

// awaitOther waits until a node other than p accepts writes.
func (c *cluster) awaitOther(p int) {
	c.t.Helper()
	eventually(c.t, "another primary", patience, func(context.Context) bool {
		i := c.writers.accepting()
		return i >= 0 && i != p
	})
}

// awaitPrimary waits until a node leads according to Patroni, and returns it.
func (c *cluster) awaitPrimary() (p int) {
	c.t.Helper()
	eventually(c.t, "a primary", patience, func(ctx context.Context) bool {
		p = c.primary(ctx)
		return p >= 0
	})
	return p
}

func (c *cluster) awaitReplicas() {
	c.t.Helper()
	eventually(c.t, "all replicas follow", patience, func(ctx context.Context) bool {
		return c.replicas(ctx) == size-1 && c.writers.accepting() >= 0
	})
}

func TestPatroni(t *testing.T) {
	p := find(t)
	ttls := []int{30}
	if *all {
		ttls = append(ttls, 15)
	}
	for _, ttl := range ttls {
		t.Run(fmt.Sprint("ttl=", ttl), func(t *testing.T) {
			for range *rounds {
				c := begin(t, p, ttl)
				for _, s := range scenarios {
					if !s.short && !*all {
						continue
					}
					began := time.Now()
					s.run(c, c.awaitPrimary())
					c.awaitReplicas()
					t.Logf("%s: %v", s.name, time.Since(began).Round(time.Second))
				}
				c.writers.end()
				c.writers.check(t, longest)
				c.stop()
			}
		})
	}
}
