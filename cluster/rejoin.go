package cluster

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster/forming"
	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/cluster/transport"
)

// Finding the other members again: gossip does not show them alive after a restart, and
// they may have moved. The last known addresses are joined, and those in Config.Join, whose
// names may have other addresses by now.

const (
	// joinMembers is the pause between two rounds of joining. Each round resolves host
	// names again.
	joinMembers = 2 * time.Second
	// maxJoining bounds the joins, and the lookups, under way: an address at which no
	// process runs any more may not even refuse a connection.
	maxJoining = 16
)

func (m *Member) join() {
	for {
		m.joinMissing()
		timer := time.NewTimer(joinMembers)
		select {
		case <-timer.C:
		case <-m.lifetime.Done():
			timer.Stop()
			return
		}
	}
}

// joinMissing joins the addresses at which a process may run that gossip does not know.
func (m *Member) joinMissing() {
	known, names := m.targetsToJoin()
	var round sync.WaitGroup
	round.Go(func() { atOnce(known, m.joinTarget) })
	round.Go(func() { atOnce(m.resolveNames(names), m.joinTarget) })
	round.Wait()
}

// atOnce calls f with each element, maxJoining at a time.
func atOnce[T any](list []T, f func(T)) {
	var calls sync.WaitGroup
	running := make(chan struct{}, maxJoining)
	for _, v := range list {
		running <- struct{}{}
		calls.Go(func() {
			defer func() { <-running }()
			f(v)
		})
	}
	calls.Wait()
}

func (m *Member) joinTarget(to transport.Target) {
	if m.lifetime.Err() != nil {
		return
	}
	if err := m.gossip.Join(to); err != nil {
		m.failures.Log(m.log, to.Addr, err)
	}
}

// targetsToJoin returns the last known addresses of members that gossip does not show
// alive, and the configured ones if a member is missing: addresses and, apart, names to be
// looked up. A configured address names no member unless a member is known to advertise it.
func (m *Member) targetsToJoin() (known []transport.Target, names []string) {
	s := m.roster.Snapshot()
	for _, p := range s.Peers {
		if s.Has(p.GetMember()) && !s.IsAlive(p.GetMember()) && p.GetAdvertise() != m.cfg.Advertise && p.GetAdvertise() != "" {
			known = append(known, transport.Target{Addr: p.GetAdvertise(), Member: p.GetMember(), Advertised: true})
		}
	}
	if !slices.ContainsFunc(s.Members, func(p roster.Member) bool { return p.Liveness != roster.Alive }) {
		return known, nil
	}
	for _, addr := range m.cfg.Join {
		to := transport.Target{Addr: addr}
		if p := s.At(addr); p != nil {
			to = transport.Target{Addr: addr, Member: p.GetMember(), Advertised: true}
		}
		switch {
		case addr == m.cfg.Advertise, slices.Contains(known, to):
		case to.Member == 0 && m.resolves(addr):
			names = append(names, addr)
		default:
			known = append(known, to)
		}
	}
	return known, names
}

// resolveNames returns the addresses of names at which no member is known to be.
func (m *Member) resolveNames(names []string) (targets []transport.Target) {
	var mu sync.Mutex
	var failed error
	atOnce(names, func(name string) {
		found, err := m.port.Resolve(m.lifetime, name)
		mu.Lock()
		defer mu.Unlock()
		targets, failed = append(targets, found...), errors.Join(failed, err)
	})
	m.gossip.SetLookupError(failed)
	s := m.roster.Snapshot()
	targets = slices.DeleteFunc(targets, func(to transport.Target) bool {
		return to.Addr == m.cfg.Advertise || s.At(to.Addr) != nil
	})
	return targets[:min(forming.MaxResolved, len(targets))]
}
