package cluster

import (
	"context"
	"errors"
	"log/slog"
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

// rejoining joins the addresses at which members are missing. Its collaborators are safe for concurrent use, and it has
// no state besides.
type rejoining struct {
	roster    *roster.Roster
	advertise string   // of this member
	addresses []string // in Config.Join
	gossip    joiner
	resolves  func(addr string) bool // whether the host is a name to be looked up
	resolve   func(ctx context.Context, name string) ([]transport.Target, error)
	failures  *transport.JoinFailures
	log       *slog.Logger
	lifetime  context.Context
}

// joiner is gossip as rejoining uses it.
type joiner interface {
	Join(transport.Target) error
	SetLookupError(error)
}

// run joins until the member stops.
func (r *rejoining) run() {
	for {
		r.joinMissing()
		timer := time.NewTimer(joinMembers)
		select {
		case <-timer.C:
		case <-r.lifetime.Done():
			timer.Stop()
			return
		}
	}
}

// joinMissing joins the addresses at which a process may run that gossip does not know.
func (r *rejoining) joinMissing() {
	known, names := r.targetsToJoin()
	var round sync.WaitGroup
	round.Go(func() { atOnce(known, r.joinTarget) })
	round.Go(func() { atOnce(r.resolveNames(names), r.joinTarget) })
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

func (r *rejoining) joinTarget(to transport.Target) {
	if r.lifetime.Err() != nil {
		return
	}
	if err := r.gossip.Join(to); err != nil {
		r.failures.Log(r.log, to.Addr, err)
	}
}

// targetsToJoin returns the last known addresses of members that gossip does not show
// alive, and the configured ones if a member is missing: addresses and, apart, names to be
// looked up. A configured address names no member unless a member is known to advertise it.
func (r *rejoining) targetsToJoin() (known []transport.Target, names []string) {
	s := r.roster.Snapshot()
	for _, p := range s.Peers {
		if s.Has(p.GetMember()) && !s.IsAlive(p.GetMember()) && p.GetAdvertise() != r.advertise && p.GetAdvertise() != "" {
			known = append(known, transport.Target{Addr: p.GetAdvertise(), Member: p.GetMember(), Advertised: true})
		}
	}
	if !slices.ContainsFunc(s.Members, func(p roster.Member) bool { return p.Liveness != roster.Alive }) {
		return known, nil
	}
	for _, addr := range r.addresses {
		to := transport.Target{Addr: addr}
		if p := s.At(addr); p != nil {
			to = transport.Target{Addr: addr, Member: p.GetMember(), Advertised: true}
		}
		switch {
		case addr == r.advertise, slices.Contains(known, to):
		case to.Member == 0 && r.resolves(addr):
			names = append(names, addr)
		default:
			known = append(known, to)
		}
	}
	return known, names
}

// resolveNames returns the addresses of names at which no member is known to be.
func (r *rejoining) resolveNames(names []string) (targets []transport.Target) {
	var mu sync.Mutex
	var failed error
	atOnce(names, func(name string) {
		found, err := r.resolve(r.lifetime, name)
		mu.Lock()
		defer mu.Unlock()
		targets, failed = append(targets, found...), errors.Join(failed, err)
	})
	r.gossip.SetLookupError(failed)
	s := r.roster.Snapshot()
	targets = slices.DeleteFunc(targets, func(to transport.Target) bool {
		return to.Addr == r.advertise || s.At(to.Addr) != nil
	})
	return targets[:min(forming.MaxResolved, len(targets))]
}
