package grouptest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// certificateOfName refuses a peer whose certificate does not contain the name that it
// states.
func certificateOfName(p conclave.Peer) error {
	if names := p.TLS.PeerCertificates[0].DNSNames; !slices.Contains(names, p.Name) {
		return fmt.Errorf("the certificate of %q is for %q", p.Name, names)
	}
	return nil
}

// VerifyPeer binds members to certificates. A process with another certificate of the
// same authority can neither form a group with them nor join one under a member's name.
func TestVerifyPeer_BindsNamesToCertificates(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	g, j := journaled(t, func(c *conclave.Config) {
		c.TLS = &tls.Config{Certificates: ours.issue(t, c.Name), RootCAs: ours.pool}
		c.VerifyPeer = certificateOfName
	})
	g.WantWorking()
	g.Kill(0)
	g.Start(0)
	g.WantWorking()

	c := SoloConfig(t)
	c.Name, c.Join, c.Expect = g.Configs[0].Name, g.Configs[0].Join, 3
	c.TLS = &tls.Config{Certificates: ours.issue(t, "intruder"), RootCAs: ours.pool}
	c.VerifyPeer = certificateOfName
	wantUnavailable(t, mustBeRefused(t, c, j, `is for [\"intruder\"]`))
	g.WantWorking()
}

// VerifyPeer runs for each connection, in both directions, with what the other end has
// proved.
func TestVerifyPeer_SeesEachPeer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := make(map[string][]conclave.Peer) // by the name of the member that verifies
	g := Start(t, 3, Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
		name := c.Name
		c.VerifyPeer = func(p conclave.Peer) error {
			mu.Lock()
			defer mu.Unlock()
			seen[name] = append(seen[name], p)
			return nil
		}
	}))
	g.WantWorking()
	met := func(i, k int) bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(seen[g.Configs[i].Name], func(p conclave.Peer) bool {
			return p.Member == g.ID(k) && p.Name == g.Configs[k].Name && p.Addr == g.Nodes[k].Addr() && p.TLS == nil
		})
	}
	for i, n := range g.Nodes {
		for _, k := range g.Others(i) {
			if !g.poll(g.patience, func() bool { return met(i, k) }) { // two followers may meet later
				t.Errorf("%v was not asked about member %d", n.Status().Name, k)
			}
		}
		if met(i, i) {
			t.Errorf("%v was asked about itself", n.Status().Name)
		}
	}
}

// A panic in VerifyPeer refuses the connection, and the process goes on.
func TestVerifyPeer_Panic(t *testing.T) {
	t.Parallel()
	a, b := SoloConfig(t), SoloConfig(t)
	a.Join, b.Join, a.Expect, b.Expect = []string{b.Bind}, []string{a.Bind}, 2, 2
	panics := NewJournal()
	a.Logger = panics.Logger()
	var broken sync.Once
	a.VerifyPeer = func(conclave.Peer) error {
		broken.Do(func() { panic("a bug of the application") })
		return nil
	}
	var opening sync.WaitGroup
	for _, c := range []conclave.Config{a, b} {
		opening.Go(func() {
			n, err := conclave.Open(Bounded(t), &c)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { Kill(n) }) // the other one needs it until it has opened
		})
	}
	panics.Await(t, 0, "panic in VerifyPeer")
	opening.Wait()
}

// A member that its peers refuse cannot form a group, and reports why.
func TestVerifyPeer_RefusesFounder(t *testing.T) {
	t.Parallel()
	a, b := SoloConfig(t), SoloConfig(t)
	a.Join, b.Join, a.Expect, b.Expect = []string{b.Bind}, []string{a.Bind}, 2, 2
	a.Name, b.Name = "careful", "unknown"
	a.VerifyPeer = func(p conclave.Peer) error {
		if host, _, err := net.SplitHostPort(p.Addr); err != nil || host != "127.0.0.1" {
			t.Errorf("asked about %+v", p)
		}
		return fmt.Errorf("%s is not on the list", p.Name)
	}
	own := NewJournal()
	b.Logger = own.Logger()
	refused := make(chan error, 1)
	ctx, cancel := context.WithCancel(Bounded(t))
	var opening sync.WaitGroup
	for _, c := range []conclave.Config{a, b} {
		opening.Go(func() {
			n, err := conclave.Open(ctx, &c)
			if err == nil {
				Kill(n)
				t.Errorf("%s has formed a group", c.Name)
			}
			if c.Name == b.Name {
				refused <- err
			}
		})
	}
	own.Await(t, 0, `level=WARN msg="join failed"`) // by its own search, whose reason Open returns
	cancel()
	opening.Wait()
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "unknown is not on the list") {
		t.Errorf("%v", err)
	}
}
