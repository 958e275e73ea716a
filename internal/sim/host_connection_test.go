package sim

import (
	"math/rand/v2"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
)

// The connections between the processes of members, in worlds whose further groups are quiet at times: a quiet member learns of the others by
// the ends of connections, and by new ones. They carry what all groups send. Elsewhere messages need none.

// keepAlives is for how long a connection lasts of which one end does not answer.
const keepAlives = 6 * time.Second

// hostConnections is the connection of each pair of hosts.
type hostConnections struct {
	rng   *rand.Rand // nil: there are none
	pairs map[[2]int]*hostConnection
	hung  *host // it answers although its process is paused, as one whose loops hang does
}

// hostConnection stands for both connections of a pair, of which each carries the messages of one.
type hostConnection struct {
	hosts    [2]*simMember
	ends     [2]*process // of the default group
	up       bool
	number   int
	answered time.Duration
	arrivals [2]time.Duration // of the last message to each
}

// beginConnections has the hosts connect, from now on.
func (sim *simulation) beginConnections() {
	c := &sim.connections
	c.rng, c.pairs = rand.New(rand.NewPCG(sim.seed, 8)), make(map[[2]int]*hostConnection)
	for i, a := range sim.members {
		for j, b := range sim.members[:i] {
			c.pairs[[2]int{j, i}] = &hostConnection{hosts: [2]*simMember{b, a}}
		}
	}
	sim.watchConnections()
}

// watchConnections stands for keep-alives and dialing.
func (sim *simulation) watchConnections() {
	for i := range sim.members {
		for j := range i {
			sim.connections.pairs[[2]int{j, i}].watch(sim)
		}
	}
	sim.schedule(time.Duration(10+sim.connections.rng.IntN(100))*time.Millisecond, sim.watchConnections)
}

func (c *hostConnection) watch(sim *simulation) {
	now := [2]*process{c.hosts[0].process, c.hosts[1].process}
	switch {
	case !sim.connections.answer(sim, c.hosts):
		if c.up && sim.now >= c.answered+keepAlives {
			c.lost(sim)
		}
	case c.up && c.ends == now:
		c.answered = sim.now
	default:
		c.lost(sim) // of an earlier process, at the latest now
		c.up, c.ends, c.answered = true, now, sim.now
		for i, p := range c.ends {
			other := c.hosts[1-i].id()
			p.postInGroups(sim.connections.delay(), func(c *core.Core) { c.Reconnected(other) })
		}
	}
}

// answer reports whether both hosts answer each other.
func (c *hostConnections) answer(sim *simulation, hosts [2]*simMember) bool {
	a, b := hosts[0], hosts[1]
	for _, m := range hosts {
		if m.process == nil || sim.now < m.process.pausedUntil && m.host != c.hung {
			return false
		}
	}
	n := &sim.network
	return !n.cut[a.n][b.n] && !n.cut[b.n][a.n] && sim.now >= max(n.stalledUntil[a.n][b.n], n.stalledUntil[b.n][a.n])
}

// lost ends the connection. The processes that had it notice.
func (c *hostConnection) lost(sim *simulation) {
	if !c.up {
		return
	}
	c.up = false
	c.number++
	for i, p := range c.ends {
		other := c.hosts[1-i].id()
		p.postInGroups(sim.connections.delay(), func(c *core.Core) { c.PeerDisconnected(other) })
	}
}

// connectionsLost ends those of a member that has crashed: the other hosts have noticed.
func (sim *simulation) connectionsLost(n int) {
	for other := range sim.members {
		if c := sim.connection(n, other); c != nil {
			c.up = false
			c.number++
		}
	}
}

// connection returns that of two hosts, or nil.
func (sim *simulation) connection(a, b int) *hostConnection {
	return sim.connections.pairs[[2]int{min(a, b), max(a, b)}]
}

// carries reports whether the connection is that of the present processes.
func (c *hostConnection) carries() bool {
	return c.up && c.ends[0] == c.hosts[0].process && c.ends[1] == c.hosts[1].process
}

// inOrder returns the delay of a message that arrives behind those that were sent before it.
func (c *hostConnection) inOrder(sim *simulation, to int, delay time.Duration) time.Duration {
	last := &c.arrivals[btoi(c.hosts[1].n == to)]
	*last = max(*last, sim.now+delay)
	return *last - sim.now
}

func (c *hostConnections) delay() time.Duration {
	return time.Duration(c.rng.IntN(2_000)) * time.Microsecond
}

// postInGroups posts an event to the process's part in each group.
func (proc *process) postInGroups(d time.Duration, event func(*core.Core)) {
	for _, g := range proc.sim.groups() {
		if part := g.members[proc.n].process; part != nil && part.hostProcess == proc.hostProcess {
			part.after(d, func() { part.post(event) })
		}
	}
}
