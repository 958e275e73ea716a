package sim

import (
	"time"
)

// remoteCounts counts what happened to clients, for the summary.
type remoteCounts struct{ registrations, attached, rechecked, killed, stopped, partitioned, cut, bereft int }

func (c *remoteCounts) add(o remoteCounts) {
	c.registrations += o.registrations
	c.attached += o.attached
	c.rechecked += o.rechecked
	c.killed += o.killed
	c.stopped += o.stopped
	c.partitioned += o.partitioned
	c.cut += o.cut
	c.bereft += o.bereft
}

// scheduleRemoteFaults injects faults of clients at random intervals until faultPeriod.
func (sim *simulation) scheduleRemoteFaults() {
	if len(sim.remotes) == 0 {
		return
	}
	sim.schedule(sim.between(0, 3*time.Second), func() {
		if sim.now < faultPeriod {
			sim.injectRemoteFault(sim.remotes[sim.rng.IntN(len(sim.remotes))])
			sim.scheduleRemoteFaults()
		}
	})
}

// injectRemoteFault kills a client, stops it, breaks its connection, partitions it from its
// member, ends that member, or has it not renew.
func (sim *simulation) injectRemoteFault(m *simMember) {
	if m.process == nil {
		return
	}
	r := m.process.remote
	l := r.link
	switch sim.rng.IntN(8) {
	case 0:
		m.kill()
		sim.schedule(sim.between(0, 3*time.Second), func() {
			if m.process == nil {
				m.startRemote()
			}
		})
	case 1: // at times for longer than all of its sessions and its registration live
		sim.remote.stopped++
		m.process.pause(sim.between(50*time.Millisecond, incarnationTTL+4*time.Second))
	case 2, 3:
		if l != nil {
			sim.trace("the connection of client %d breaks", m.n)
			sim.remote.cut++
			l.conn.cut()
		}
	case 4:
		if l != nil {
			sim.partitionRemote(m, l.conn.ends[memberEnd].process.n)
		}
	case 5:
		if l != nil && sim.faults.crashes {
			member := l.conn.ends[memberEnd].process
			if member.process == member {
				sim.remote.bereft++
				member.crash("under a client")
				sim.faults.restartLater(member.simMember)
			}
		}
	case 6:
		if sim.faults.missedRenewals {
			m.process.program.mutedUntil = sim.now + sim.between(time.Second, incarnationTTL)
			sim.trace("client %d pauses its renewals", m.n)
		}
	case 7:
		if sim.faults.forcedCloses {
			sim.forceCloseAny(m.process.program)
		}
	}
}

// partitionRemote cuts the links of a client and a member, or one of them, for some time; in
// half of the cases those to all other members too.
func (sim *simulation) partitionRemote(m *simMember, member int) {
	sim.remote.partitioned++
	all, to, from := sim.rng.IntN(2) == 0, true, true
	switch sim.rng.IntN(4) {
	case 0:
		to = false
	case 1:
		from = false
	}
	set := func(cut bool) {
		for n := range sim.members {
			if n == member || all {
				sim.network.cut[m.n][n], sim.network.cut[n][m.n] = cut && to, cut && from
			}
		}
	}
	sim.trace("client %d is partitioned from member %d: all members %t, to it %t, from it %t", m.n, member, all, to, from)
	set(true)
	sim.schedule(sim.between(100*time.Millisecond, incarnationTTL), func() { set(false) })
}

// healRemotes ends the faults of clients.
func (sim *simulation) healRemotes() {
	for _, m := range sim.remotes {
		if m.process == nil {
			m.startRemote()
		}
		m.process.pausedUntil, m.process.program.mutedUntil = sim.now, 0
		if sim.faults.coarseClocks {
			m.process.setRate(0)
		}
	}
}

// remotesAtRest reports whether all clients are attached, and have acquired and released once
// more.
func (sim *simulation) remotesAtRest() bool {
	for _, m := range sim.remotes {
		if m.process == nil || !m.process.program.registered || !m.process.program.atRest() {
			return false
		}
	}
	return true
}

// checkNothingHeld checks, once all programs are at rest, that no session of theirs holds
// anything but what lingers, and none waits. A lock may be in the lock-delay of a session that has ended.
func (sim *simulation) checkNothingHeld() {
	m := sim.history.oracle
	for _, v := range locksOf(m) {
		if (v.Held || v.Waiters > 0) && v.Handle < firstTenure {
			sim.fail("all programs are at rest, and %s is held: %+v", v.Name, v)
		}
	}
	if sets := sim.history.audit.heldSets; len(sets) > 0 {
		sim.fail("all programs are at rest, and sets are held: %+v", sets)
	}
	for _, v := range jobsOf(m) {
		if v.Running > 0 || v.Waiting > 0 {
			sim.fail("all programs are at rest, and %s runs: %+v", v.Name, v)
		}
	}
	for _, name := range elections {
		if l := leaderOf(m, name); l != nil {
			sim.fail("all programs are at rest, and %s has a leader: %v", name, l)
		}
	}
	for _, name := range semaphores {
		if v, _ := semaphoreOf(m, name); len(v.Holders) > 0 || v.Waiters > 0 {
			sim.fail("all programs are at rest, and permits of %s are held: %+v", name, v)
		}
	}
}
