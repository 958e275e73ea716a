package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
)

// faults are the classes of faults of one simulation. Each seed has some of them:
// with all of them all the time a group makes hardly any progress.
type faults struct {
	sim                                                             *simulation
	partitions, crashes, pauses, transfers, missedRenewals          bool
	loss, duplicates, reorders, slowDisk, disconnects, lostOutcomes bool
	clockSkew, forcedCloses, checks                                 bool
	topologies, stalls, diskFaults, removals                        bool
	coarseClocks, slowApply, keepsUnsynced, flips, liar             bool
	lingers                                                         bool // some handles have locks linger
	claimsSets                                                      bool // sessions without a TTL have sets, which later processes claim
	jobs                                                            bool // processes run jobs
	shards                                                          bool // processes work on shards
	tasks                                                           bool // sessions stand for one task each
	joins                                                           bool // members are admitted, lost permanently and removed by others
	clients                                                         int  // processes that are no members
	keepEntries                                                     uint64
	checkpointEntries                                               int
}

func (f faults) String() string {
	return fmt.Sprintf("partitions=%t crashes=%t pauses=%t transfers=%t missedRenewals=%t loss=%t duplicates=%t reorders=%t "+
		"slowDisk=%t disconnects=%t lostOutcomes=%t clockSkew=%t forcedCloses=%t checks=%t topologies=%t stalls=%t "+
		"diskFaults=%t removals=%t coarseClocks=%t slowApply=%t keepsUnsynced=%t flips=%t liar=%t joins=%t lingers=%t claimsSets=%t jobs=%t shards=%t tasks=%t clients=%d keepEntries=%d checkpointEntries=%d",
		f.partitions, f.crashes, f.pauses, f.transfers, f.missedRenewals, f.loss, f.duplicates, f.reorders,
		f.slowDisk, f.disconnects, f.lostOutcomes, f.clockSkew, f.forcedCloses, f.checks, f.topologies, f.stalls,
		f.diskFaults, f.removals, f.coarseClocks, f.slowApply, f.keepsUnsynced, f.flips, f.liar, f.joins, f.lingers, f.claimsSets, f.jobs, f.shards, f.tasks, f.clients, f.keepEntries, f.checkpointEntries)
}

// chooseFaults draws the classes of faults for a seed.
func chooseFaults(sim *simulation) faults {
	f := faults{sim: sim, keepEntries: []uint64{3, 10, 10_000}[sim.rng.IntN(3)]}
	for _, class := range []*bool{
		&f.partitions, &f.crashes, &f.pauses, &f.transfers, &f.missedRenewals,
		&f.loss, &f.duplicates, &f.reorders, &f.slowDisk, &f.disconnects, &f.lostOutcomes, &f.forcedCloses,
	} {
		*class = sim.chance(0.6)
	}
	f.clockSkew = sim.chance(0.3)
	f.checks = sim.seed%3 == 0 // not random, so that the runs of older seeds stay the same
	f.checkpointEntries = []int{1, 3, 30, 0}[sim.seed/2%4]
	f.topologies = sim.seed%2 == 0
	f.stalls = sim.seed%3 == 1
	f.diskFaults = sim.seed%5 == 2
	f.removals = sim.seed%7 == 3
	f.coarseClocks = sim.seed%6 == 5
	f.slowApply = sim.seed%4 == 2
	f.keepsUnsynced = sim.seed%2 == 1
	f.lingers = sim.seed/3%2 == 1
	f.liar = sim.seed%8 == 1
	f.claimsSets = slices.Contains([]uint64{0, 1, 3, 4}, sim.seed%11)         // of none of the regression seeds
	f.jobs = slices.Contains([]uint64{3, 4, 5, 7, 9, 10}, sim.seed%13)        // nor in these
	f.shards = slices.Contains([]uint64{0, 1, 4, 8, 11, 12, 15}, sim.seed%17) // nor in these
	f.tasks = slices.Contains([]uint64{6, 8, 13, 15, 21}, sim.seed%23)        // nor in these
	f.flips = sim.seed%4 == 3 && !f.removals
	if f.joins = sim.seed%7 == 5; f.joins {
		f.flips, f.liar, f.checks = false, false, true
		f.removals = sim.extraRNG.IntN(2) == 0
	}
	if sim.seed%5 == 0 || sim.seed%25 == 17 { // the latter with disks that fail
		f.clients = 1 + int(sim.seed/5%3)
	}
	if f.tasks { // the more, the longer are the cycles
		f.clients = 4
	}
	return f
}

// network returns a network with the chosen faults.
func (f faults) network(n int) network {
	net := healthyNetwork(n)
	if f.loss {
		net.loss = 0.3 * f.sim.rng.Float64() * f.sim.rng.Float64()
		if f.sim.rests {
			net.loss /= 10 // all members must have answered for the group to be quiet
		}
	}
	if f.duplicates {
		net.duplicate = 0.2 * f.sim.rng.Float64()
	}
	if f.reorders {
		net.maxDelay = f.sim.between(5*time.Millisecond, 200*time.Millisecond)
	}
	return net
}

// dropOutcome reports whether a first outcome is to be lost on its way to the
// caller.
func (f *faults) dropOutcome() bool { return f.lostOutcomes && !f.sim.draining && f.sim.chance(0.1) }

// scheduleFaults injects faults at random intervals until faultPeriod.
func (sim *simulation) scheduleFaults() {
	sim.schedule(sim.between(0, sim.faultPause()), func() {
		if sim.now >= sim.faultPeriod() {
			return
		}
		sim.injectFault()
		sim.injectGroupFault()
		sim.scheduleFaults()
	})
}

// injectFault injects one random fault, if its class is chosen.
func (sim *simulation) injectFault() {
	m := sim.members[sim.rng.IntN(len(sim.members))]
	f := &sim.faults
	if f.joins && sim.extraRNG.IntN(4) == 0 {
		sim.changeMembership()
		return
	}
	if f.flips && sim.injectFlip(m) {
		return
	}
	switch sim.rng.IntN(10) {
	case 0:
		sim.injectNetworkFault()
	case 1:
		sim.network.heal()
		sim.trace("all partitions heal")
	case 2:
		if f.crashes && m.process != nil {
			m.crash("injected")
			f.restartLater(m)
		}
	case 3:
		if f.diskFaults && m.process != nil {
			m.diskFault.writesLeft = 1 + sim.extraRNG.IntN(20)
			sim.trace("the disk of member %d is going to fail", m.n)
		}
		if f.crashes && m.process != nil {
			m.process.chooseCrashPoint()
		}
	case 4:
		if f.pauses && m.process != nil {
			m.process.pause(sim.between(50*time.Millisecond, 8*time.Second))
		}
	case 5:
		if f.transfers && m.process != nil {
			to := uint64(sim.rng.IntN(len(sim.members) + 1))
			m.process.post(func(c *core.Core) {
				if c.Status().Leads {
					c.Transfer(to, make(chan error, 1))
				}
			})
		}
	case 6:
		sim.disks.slow = f.slowDisk && !sim.disks.slow
	case 7:
		if f.missedRenewals && m.process != nil {
			m.process.program.mutedUntil = sim.now + sim.between(time.Second, incarnationTTL)
			sim.trace("member %d pauses its renewals", m.n)
			sim.reportDeath(m)
		}
	case 8:
		if f.forcedCloses && m.process != nil {
			sim.forceCloseAny(m.process.program)
		}
	case 9:
		if m.process != nil {
			sim.injectCommands(m)
		}
	}
}

// injectCommands has the program of a member submit rare commands.
func (sim *simulation) injectCommands(m *simMember) {
	sim.resize(m.process.program)
	if sim.faults.removals && sim.extraRNG.IntN(3) == 0 {
		sim.requestLeaves(m)
	}
	sim.reportRandomLiveness(m.process.program)
}

// injectNetworkFault changes the topology or partitions the group, and stalls a link.
func (sim *simulation) injectNetworkFault() {
	f := &sim.faults
	if f.topologies && sim.extraRNG.IntN(2) == 0 {
		sim.limitTopology()
	} else if f.partitions {
		sim.partition()
	}
	if f.stalls {
		sim.stallLink()
	}
}

// restartLater schedules a restart. In some simulations the peers notice the broken
// connections.
func (f *faults) restartLater(m *simMember) {
	if m.of != nil {
		m.of.sim.faults.restartLater(m.of)
		return
	}
	if f.disconnects {
		for _, other := range f.sim.members {
			if other.process != nil {
				other.process.after(time.Millisecond, func() { other.process.post(func(c *core.Core) { c.PeerDisconnected(m.id()) }) })
			}
		}
		f.sim.disconnectGroups(m)
		if f.checks {
			f.sim.reportCrash(m)
		}
	}
	f.sim.schedule(f.sim.between(0, 3*time.Second), func() {
		if m.process == nil && !m.removed && !m.destroyed && !m.absent {
			m.start()
		}
	})
}

// heal ends all faults.
func (sim *simulation) heal() {
	sim.trace("all faults end")
	sim.network = healthyNetwork(len(sim.members) + len(sim.remotes))
	sim.disks.slow = false
	sim.draining = true
	if sim.faults.joins {
		sim.removeLost()
	}
	for _, m := range sim.remaining() {
		if m.process == nil {
			m.start()
		}
		m.process.pausedUntil, m.process.crashPoint, m.diskFault.writesLeft = sim.now, crashNowhere, 0
		if sim.faults.coarseClocks {
			m.process.setRate(0)
		}
		m.process.program.mutedUntil = 0
	}
	sim.healRemotes()
	sim.healGroups()
}

// applyDelay is how long a process blocks while it applies n entries.
func (sim *simulation) applyDelay(n uint64) time.Duration {
	return time.Duration(sim.extraRNG.Int64N(int64(min(n, 20) * uint64(10*time.Millisecond))))
}
