package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// shape is what a group of conclave consists of.
type shape struct {
	voters   int
	standbys int  // members that join the voters' group
	memory   bool // the members have no directory
	calls    int  // Limits.Calls; 0: the default
	unused   bool // no node opens a session
	// dial and wrap replace TCP, to count what is sent. nil: they do not.
	dial func(ctx context.Context, addr string) (net.Conn, error)
	wrap func(net.Listener) net.Listener
}

func startConclave(ctx context.Context, dir string, memory bool) (group, error) {
	g, err := startShape(ctx, dir, shape{voters: members, memory: memory})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// startShape starts the voters, which form the group, and then the standbys, which join it.
func startShape(ctx context.Context, dir string, s shape) (*conclaveGroup, error) {
	n := s.voters + s.standbys
	listeners, addresses, err := listen(n)
	if err != nil {
		return nil, err
	}
	g := &conclaveGroup{nodes: make([]*conclave.Node, n)}
	founders := addresses[:s.voters]
	err = g.open(0, s.voters, func(i int) (*conclave.Node, error) {
		return conclave.Open(ctx, s.config(i, dir, listeners[i], founders))
	})
	if err != nil {
		for _, l := range listeners[s.voters:] {
			l.Close() // no node has it
		}
	} else {
		err = g.open(s.voters, n, func(i int) (*conclave.Node, error) {
			return conclave.Open(ctx, s.config(i, dir, listeners[i], founders))
		})
	}
	if err == nil {
		err = g.awaitShape(ctx, s)
	}
	if err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (s shape) config(i int, dir string, l net.Listener, founders []string) *conclave.Config {
	cfg := &conclave.Config{Name: fmt.Sprint("m", i), Listener: l, Voters: s.voters, Dial: s.dial}
	if s.wrap != nil {
		cfg.Listener = s.wrap(l)
	}
	if s.voters+s.standbys > 1 {
		cfg.Join = founders
	}
	if i < s.voters {
		cfg.Expect = s.voters
		if s.voters == 1 {
			cfg.Join = nil // a group of one is formed without search
		}
	}
	if !s.memory {
		cfg.Dir = filepath.Join(dir, cfg.Name)
	}
	cfg.Limits.Calls = s.calls
	return cfg
}

// open opens some of the nodes concurrently.
func (g *conclaveGroup) open(from, until int, open func(i int) (*conclave.Node, error)) error {
	errs := make([]error, until)
	var wg sync.WaitGroup
	for i := from; i < until; i++ {
		wg.Go(func() { g.nodes[i], errs[i] = open(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// awaitShape waits until the group has all members, in their roles, and locks can linger: a
// new group raises its feature level soon. Nothing signals either, so it asks again and again.
func (g *conclaveGroup) awaitShape(ctx context.Context, s shape) error {
	l := g.nodes[0].FencedLock("linger", conclave.Linger(time.Second))
	ask := lingers
	if s.unused {
		ask = exists
	}
	for {
		ok, err := ask(ctx, l)
		if err != nil {
			return err
		}
		if voters, standbys := g.roles(); ok && voters == s.voters && standbys == s.standbys {
			return nil
		}
	}
}

// exists asks the group without using it: a query needs no session.
func exists(ctx context.Context, l *conclave.FencedLock) (bool, error) {
	_, err := l.Info(ctx)
	return true, err
}

// lingers uses a lock once and reports whether it lingers.
func lingers(ctx context.Context, l *conclave.FencedLock) (bool, error) {
	if _, err := l.Lock(ctx); err != nil {
		return false, err
	}
	info, err := l.Info(ctx)
	return info.Lingering, errors.Join(err, l.Unlock(ctx))
}

// roles counts the members as the first node sees them.
func (g *conclaveGroup) roles() (voters, standbys int) {
	for _, m := range g.nodes[0].Status().Members {
		if m.Role == conclave.Voter {
			voters++
		} else {
			standbys++
		}
	}
	return voters, standbys
}
