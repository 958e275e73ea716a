package conclave

import (
	"context"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// gossipCheck keeps the group's gossip checks in step with gossip, on the leader
// only: what it sees differently from the group it reports to the group. That
// the leader has a majority is confirmed before each report, so a member that
// is cut off from the others does not report all of them. Nor does one that was:
// its gossip takes longer than raft to find the others again, and until then
// shows dead who is not.
type gossipCheck struct {
	node   *Node
	leader atomic.Uint64
	term   atomic.Uint64 // not later than leader
	woken  chan struct{} // holds one token when there is something to look at

	// Of the goroutine.
	absent map[uint64]absence // members of whose last start gossip knows nothing
	astray bool               // gossip has shown most voters dead when it was looked at last
	mended time.Time          // when this member was found not to be cut off any more
}

type absence struct {
	boot  uint64
	since time.Time
}

// gossipPatience is how long gossip may take to show a start of a member that
// the group knows, before the process counts as dead, and to find the others
// again after this member was cut off. One that gossip has seen is declared dead
// by gossip itself, and much sooner.
const gossipPatience = 30 * time.Second

func newGossipCheck(n *Node) *gossipCheck {
	return &gossipCheck{node: n, woken: make(chan struct{}, 1)}
}

func (g *gossipCheck) leaderChanged(leader, term uint64) {
	g.leader.Store(0) // so that nobody takes the one's term for the other's
	g.term.Store(term)
	g.leader.Store(leader)
	g.wake()
}

func (g *gossipCheck) wake() {
	select {
	case g.woken <- struct{}{}:
	default:
	}
}

// run works until the node has stopped. Each report is waited for before the
// next is worked out.
func (g *gossipCheck) run() {
	labels := pprof.Labels("conclave", g.node.id.String(), "goroutine", "gossip check")
	pprof.Do(context.Background(), labels, func(context.Context) { g.follow() })
}

func (g *gossipCheck) follow() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-g.woken:
		case <-timer.C:
		case <-g.node.done:
			return
		}
		timer.Stop()
		if again := g.look(); again > 0 {
			timer.Reset(again)
		}
	}
}

func (g *gossipCheck) leads() bool { return MemberID(g.leader.Load()) == g.node.id }

// look compares what the group holds with what gossip says, and sees to it that
// they agree. again is when to look next if nothing happens; 0 is never.
func (g *gossipCheck) look() (again time.Duration) {
	g.noteContact(g.node.member.Majority(), 0, time.Now())
	if !g.leads() {
		g.absent = nil
		return 0
	}
	var held []machine.GossipView
	term, asked := g.term.Load(), time.Now()
	err := g.node.read(context.Background(), func(m *machine.Machine) { held = m.Gossip() })
	if err != nil || !g.leads() {
		return gossipPatience
	}
	now := time.Now()
	g.noteContact(g.node.member.Majority(), now.Sub(asked), now)
	reports, again := g.judge(held, g.node.member.Presence(), now)
	for _, r := range reports {
		if left := g.untrusted(now); left > 0 && !r.GetAlive() {
			again = min(again, left)
			continue
		}
		r.Term = term
		if !g.report(r) {
			again = gossipPatience
		}
	}
	return again
}

// noteContact notes whether this member has been cut off: gossip does not show a
// majority, or it took long to confirm one.
func (g *gossipCheck) noteContact(majority bool, confirmed time.Duration, now time.Time) {
	if g.astray && majority || confirmed >= g.node.cfg.ElectionTimeout {
		g.mended = now
	}
	g.astray = !majority
}

// untrusted is for how long deaths that gossip shows are not to be believed. Most
// voters cannot be dead where this member leads.
func (g *gossipCheck) untrusted(now time.Time) time.Duration {
	if g.astray {
		return gossipPatience
	}
	return g.mended.Add(gossipPatience).Sub(now)
}

// report tells the group, and reports whether it has heard.
func (g *gossipCheck) report(r *wire.ReportGossip) bool {
	g.node.log.Info("gossip sees a member differently from the group", "member", MemberID(r.GetMember()), "alive", r.GetAlive())
	answered := make(chan answer, 1)
	g.node.pursue(&wire.Command{Op: &wire.Command_ReportGossip{ReportGossip: r}}, func(a answer) { answered <- a })
	select {
	case a := <-answered:
		return a.err == nil && refusal(a.reply) == nil
	case <-g.node.done:
		return false
	}
}

// judge works out the reports that are due. As long as a member is not there it
// asks to be called again: the member may still be registered late, by a command
// that was under way, and gossip would have nothing more to say of it.
func (g *gossipCheck) judge(held []machine.GossipView, seen []cluster.Presence, now time.Time) (reports []*wire.ReportGossip, again time.Duration) {
	presence := make(map[uint64]cluster.Presence, len(seen))
	for _, p := range seen {
		presence[p.Member] = p
	}
	absent := make(map[uint64]absence)
	for _, v := range held {
		p, isMember := presence[v.Member]
		if !isMember {
			continue
		}
		boot := p.Boot
		if !p.Alive && again == 0 {
			again = gossipPatience
		}
		if !p.Alive && !(p.Dead && p.Boot >= v.Boot) {
			boot = v.Boot
			a := g.absent[v.Member]
			if a.boot != v.Boot {
				a = absence{v.Boot, now}
			}
			absent[v.Member] = a
			if left := a.since.Add(gossipPatience).Sub(now); left > 0 {
				again = min(again, left)
				continue
			}
		}
		if boot >= v.Boot && v.Silent == p.Alive {
			reports = append(reports, &wire.ReportGossip{Member: v.Member, Boot: boot, Alive: p.Alive})
		}
	}
	g.absent = absent
	return reports, again
}
