package sim

import (
	"fmt"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
)

// faults are the classes of trouble of one world. Each seed has some of them:
// with all of them all the time a group hardly ever gets to do anything.
type faults struct {
	w                                                *world
	cuts, crashes, pauses, transfers, mutes          bool
	loss, doubles, reorders, slowDisk, broken, drops bool
	clocks, force, checks                            bool
	shapes, clogs, ill, leaves                       bool
	coarse, busy, keeps                              bool
	keep                                             uint64
}

func (f faults) String() string {
	return fmt.Sprintf("cuts=%t crashes=%t pauses=%t transfers=%t mutes=%t loss=%t doubles=%t reorders=%t slowDisk=%t broken=%t drops=%t clocks=%t force=%t checks=%t shapes=%t clogs=%t ill=%t leaves=%t coarse=%t busy=%t keeps=%t keep=%d",
		f.cuts, f.crashes, f.pauses, f.transfers, f.mutes, f.loss, f.doubles, f.reorders, f.slowDisk, f.broken, f.drops, f.clocks, f.force, f.checks, f.shapes, f.clogs, f.ill, f.leaves, f.coarse, f.busy, f.keeps, f.keep)
}

func chooseFaults(w *world) faults {
	f := faults{w: w, keep: []uint64{3, 10, 10_000}[w.rng.IntN(3)]}
	for _, class := range []*bool{
		&f.cuts, &f.crashes, &f.pauses, &f.transfers, &f.mutes, &f.loss, &f.doubles, &f.reorders, &f.slowDisk, &f.broken, &f.drops, &f.force,
	} {
		*class = w.chance(0.6)
	}
	f.clocks = w.chance(0.3)
	f.checks = w.seed%3 == 0 // by no dice, so that what seeds have found before stays found
	f.shapes = w.seed%2 == 0
	f.clogs = w.seed%3 == 1
	f.ill = w.seed%5 == 2
	f.leaves = w.seed%7 == 3
	f.coarse = w.seed%6 == 5
	f.busy = w.seed%4 == 2
	f.keeps = w.seed%2 == 1
	return f
}

func (f faults) network(n int) network {
	net := wholeNetwork(n)
	if f.loss {
		net.loss = 0.3 * f.w.rng.Float64() * f.w.rng.Float64()
	}
	if f.doubles {
		net.double = 0.2 * f.w.rng.Float64()
	}
	if f.reorders {
		net.slowest = f.w.between(5*time.Millisecond, 200*time.Millisecond)
	}
	return net
}

// drop lets a first outcome go unnoticed, as if the process had missed it.
func (f *faults) drop() bool { return f.drops && !f.w.calm && f.w.chance(0.1) }

// trouble strikes again and again.
func (w *world) trouble() {
	w.after(w.between(0, time.Second), func() {
		if w.now >= troubled {
			return
		}
		w.strike()
		w.trouble()
	})
}

func (w *world) strike() {
	m := w.members[w.rng.IntN(len(w.members))]
	f := &w.faults
	switch w.rng.IntN(10) {
	case 0:
		if f.shapes && w.later.IntN(2) == 0 {
			w.reshape()
		} else if f.cuts {
			w.partition()
		}
		if f.clogs {
			w.clog()
		}
	case 1:
		w.network.reset()
		w.say("the network is whole")
	case 2:
		if f.crashes && m.life != nil {
			m.crash("struck")
			f.restartLater(m)
		}
	case 3:
		if f.ill && m.life != nil {
			m.sick.after = 1 + w.later.IntN(20)
			w.say("%d's disk is going to fail", m.n)
		}
		if f.crashes && m.life != nil {
			m.life.doom = 1 + doom(w.rng.IntN(int(doomStaging)))
		}
	case 4:
		if f.pauses && m.life != nil {
			m.life.pause(w.between(50*time.Millisecond, 8*time.Second))
		}
	case 5:
		if f.transfers && m.life != nil {
			to := uint64(w.rng.IntN(len(w.members) + 1))
			m.life.event(func(c *core.Core) {
				if c.Status().Leads {
					c.Transfer(to, make(chan error, 1))
				}
			})
		}
	case 6:
		w.disks.slow = f.slowDisk && !w.disks.slow
	case 7:
		if f.mutes && m.life != nil {
			m.life.program.muted = w.now + w.between(time.Second, 5*time.Second)
			w.say("%d does not renew for a while", m.n)
		}
	case 8:
		if f.force && m.life != nil {
			w.closeByForce(m.life.program)
		}
	case 9:
		if m.life != nil {
			w.resize(m.life.program)
			if f.leaves && w.later.IntN(3) == 0 {
				w.leave(m.life.program)
			}
			w.gossip(m.life.program)
		}
	}
}

// restartLater also lets the others notice the broken connections, at times.
func (f *faults) restartLater(m *simMember) {
	if f.broken {
		for _, other := range f.w.members {
			if other.life != nil {
				other.life.at(time.Millisecond, func() { other.life.event(func(c *core.Core) { c.PeerDisconnected(m.id()) }) })
			}
		}
	}
	f.w.after(f.w.between(0, 3*time.Second), func() {
		if m.life == nil && !m.gone && !m.dead {
			m.start()
		}
	})
}

// heal ends all trouble.
func (w *world) heal() {
	w.say("all is healed")
	w.network = wholeNetwork(len(w.members))
	w.disks.slow = false
	w.calm = true
	for _, m := range w.present() {
		if m.life == nil {
			m.start()
		}
		m.life.wakes, m.life.doom, m.sick.after = w.now, doomNone, 0
		if w.faults.coarse {
			m.life.setRate(0)
		}
		m.life.program.muted = 0
	}
}
