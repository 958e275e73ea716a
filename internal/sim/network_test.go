package sim

import "time"

// network carries encoded messages between members.
type network struct {
	loss, duplicate    float64
	minDelay, maxDelay time.Duration
	cut                [][]bool          // from, to
	stalledUntil       [][]time.Duration // from, to
}

// healthyNetwork returns a network of n members without faults.
func healthyNetwork(n int) network {
	net := network{minDelay: 100 * time.Microsecond, maxDelay: time.Millisecond, cut: make([][]bool, n), stalledUntil: make([][]time.Duration, n)}
	for i := range net.cut {
		net.stalledUntil[i] = make([]time.Duration, n)
		net.cut[i] = make([]bool, n)
	}
	return net
}

// deliver schedules the arrival at a process, if one runs by then. It returns false
// for a loss that the sender could notice.
func (sim *simulation) deliver(from, to int, arrive func(*process)) bool {
	if sim.network.cut[from][to] || !sim.members[to].isUp() {
		return false
	}
	connection, number := sim.connection(from, to), 0
	if connection != nil {
		if number = connection.number; !connection.carries() {
			return false
		}
	}
	if sim.chance(sim.network.loss) {
		return true
	}
	copies := 1
	if sim.chance(sim.network.duplicate) {
		copies = 2
	}
	for range copies {
		stall := max(0, sim.network.stalledUntil[from][to]-sim.now)
		delay := stall + sim.between(sim.network.minDelay, sim.network.maxDelay)
		if connection != nil && (sim.draining || !sim.faults.reorders) {
			delay = connection.inOrder(sim, to, delay)
		}
		sim.schedule(delay, func() {
			switch proc := sim.members[to].process; {
			case proc == nil || connection != nil && connection.number != number:
			case proc.isMember(from):
				arrive(proc)
			}
		})
	}
	return true
}
