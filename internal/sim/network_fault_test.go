package sim

import "time"

// partition cuts connections: those of one member, of two halves, or of a pair, and
// any of these in one direction only.
func (sim *simulation) partition() {
	n := len(sim.members)
	sides := make([]bool, n)
	shape := sim.rng.IntN(3)
	for i := range sides {
		sides[i] = sim.chance(0.5)
	}
	a, b := sim.rng.IntN(n), sim.rng.IntN(n)
	oneWay := sim.chance(0.3)
	for from := range n {
		for to := range n {
			cut := false
			switch shape {
			case 0: // one member
				cut = (from == a) != (to == a)
			case 1: // two halves
				cut = sides[from] != sides[to]
			case 2: // a pair
				cut = from == a && to == b || from == b && to == a
			}
			if cut && !(oneWay && from > to) {
				sim.network.cut[from][to] = true
			}
		}
	}
	sim.trace("partition: %v", sim.network.cut)
}

// heal ends all partitions; stalled links remain.
func (n *network) heal() {
	for _, row := range n.cut {
		clear(row)
	}
}

// limitTopology leaves only the connections of a topology that is difficult for
// raft: a bridge between two halves, a ring, or a ring with messages in one
// direction.
func (sim *simulation) limitTopology() {
	n := len(sim.members)
	shape, bridge := sim.extraRNG.IntN(3), sim.extraRNG.IntN(n)
	next := func(from, to int) bool { return (from+1)%n == to }
	for from := range n {
		for to := range n {
			cut := false
			switch shape {
			case 0: // a bridge
				cut = from != bridge && to != bridge && (from < n/2) != (to < n/2)
			case 1: // a ring
				cut = !next(from, to) && !next(to, from)
			case 2: // a one-way ring
				cut = !next(from, to)
			}
			sim.network.cut[from][to] = cut && from != to
		}
	}
	sim.trace("topology %d: %v", shape, sim.network.cut)
}

// stallLink makes a link hold back all messages for some seconds and then deliver
// them.
func (sim *simulation) stallLink() {
	n := len(sim.members)
	from, to := sim.extraRNG.IntN(n), sim.extraRNG.IntN(n)
	sim.network.stalledUntil[from][to] = sim.now + time.Duration(1+sim.extraRNG.IntN(5_000))*time.Millisecond
	sim.trace("the link from %d to %d stalls until %v", from, to, sim.network.stalledUntil[from][to])
}

// isolate partitions a member from all others.
func (sim *simulation) isolate(n int) {
	for other := range sim.members {
		sim.network.cut[n][other], sim.network.cut[other][n] = other != n, other != n
	}
}
