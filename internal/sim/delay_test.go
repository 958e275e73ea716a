package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// Promise: a lock-delay is measured in group time and survives whatever happens
// to members meanwhile. What a session held that was ended by force is granted
// not before its lock-delay has passed, and soon after.
//
// Soon: group time stands still while nobody leads, and a leader looks at the
// deadlines with each event, at least once a tick. So in group time the grant
// comes within two ticks (the second one for the entry that is under way). In
// the world's time each change of leader adds the time until there is a new one,
// and what had passed since the last entry before it: a leader takes office at
// the time of the last entry.
func TestLockDelayAcrossFailures(t *testing.T) {
	for _, subject := range subjects() {
		for _, story := range []struct {
			name string
			tell func(*delayWorld)
		}{
			{"power cut", (*delayWorld).powerCut},
			{"snapshot", (*delayWorld).snapshotThenPowerCut},
			{"leader dies at the end", (*delayWorld).leaderDiesAtTheEnd},
		} {
			for seed := range uint64(3) {
				t.Run(fmt.Sprintf("%s/%s/%d", subject.name, story.name, seed), func(t *testing.T) {
					d := newDelayWorld(t, seed, subject)
					d.ends()
					story.tell(d)
					d.verdict()
				})
			}
		}
	}
}

const lockDelay = 20 * time.Second

// delayWorld has its former holder and its waiter on member 2. That one's process
// does not come back when it is killed: the waiter's session has a TTL that is
// long enough, and his place in the queue is in the replicated state. The others
// renew, as production does, so that there are entries to carry group time.
type delayWorld struct {
	*world
	subject
	holder         *simSession
	waiter         *simSession
	ended, granted moment
	leaderless     time.Duration // between the two
	offices        int           // terms that had a leader before
}

// moment is a time by both clocks; zero: not yet.
type moment struct {
	world time.Duration
	group int64
}

const (
	dueller = 2 // the member of holder and waiter
	long    = 5 * time.Minute
	pulse   = 600 * time.Millisecond // between renewals
)

func newDelayWorld(t *testing.T, seed uint64, s subject) *delayWorld {
	d := &delayWorld{world: scriptedWorld(t, seed, 3, faults{keep: 3}), subject: s}
	d.register(dueller)
	d.holder = d.openSession(dueller, long, lockDelay, wire.Behavior_DELETE)
	d.waiter = d.openSession(dueller, long, 0, wire.Behavior_RELEASE)
	d.must(dueller, wire.Code_OK, s.take(d.holder, false))
	if s.waits {
		d.queueUp()
	}
	d.script = d.others
	for n := range dueller {
		d.others(d.program(n))
	}
	return d
}

// queueUp has the waiter wait. He has no need to be told: the log says it.
func (d *delayWorld) queueUp() {
	queued := false
	call := d.program(dueller).call(d.take(d.waiter, true), false, func(_ wire.Ticket, _ *wire.Reply, more bool) { queued = queued || more })
	call.recheck = func(*observed, wire.Ticket) *wire.Reply { return nil }
	d.await(election, "place in the queue", func() bool { return queued })
}

// others is what the processes do that live on: they renew, and where one cannot
// queue they try.
func (d *delayWorld) others(p *program) {
	if p.n == dueller {
		return
	}
	p.register()
	var begin func()
	begin = func() {
		if !p.registered {
			p.at(tick, begin)
			return
		}
		s := p.newSession(long, 0, wire.Behavior_RELEASE)
		p.keepRenewing(pulse)
		if !d.waits {
			d.try(p, s)
		}
	}
	begin()
}

// try asks each tick, and may be told nothing but how long it will take.
func (d *delayWorld) try(p *program, s *simSession) {
	again := func() { p.at(tick, func() { d.try(p, s) }) }
	if !s.open {
		again()
		return
	}
	p.submit(d.take(s, false), false, func(r *wire.Reply) {
		switch r.GetCode() {
		case wire.Code_OK, wire.Code_LOCKED:
		case wire.Code_LOCK_DELAY:
			if left := time.Duration(r.GetDelay()); left <= 0 || left > lockDelay {
				d.fail("%v of the lock-delay are left", left)
			}
		default:
			d.fail("member %d: %v", p.n, r)
		}
		again()
	})
}

// ends ends the holder's session by force, and begins to watch.
func (d *delayWorld) ends() {
	d.pass(time.Second)
	d.holder.closing = true
	d.history.each, d.passing = d.watch, d.measure
	d.must(0, wire.Code_OK, closeCommand(d.holder, false))
}

func (d *delayWorld) watch() {
	now, owner := moment{d.now, d.history.oracle.Now()}, d.owner(d.history.oracle)
	switch _, alive := liveSession(d.history.oracle, d.holder.id); {
	case alive || d.granted.group != 0:
	case d.ended.group == 0:
		d.ended, d.offices = now, len(d.history.leaders)
	case !owner.IsZero():
		d.granted = now
		if d.waits && owner != d.waiter.id {
			d.fail("granted to session %s, ahead of who waited", owner)
		}
	}
}

// measure adds up the time in which no leader's clock ran.
func (d *delayWorld) measure(passed time.Duration) {
	l := d.leader()
	if d.ended.group != 0 && d.granted.group == 0 && (l == nil || !l.core.Status().Proposing) {
		d.leaderless += passed
	}
}

// until lets time pass up to a moment after the session's end.
func (d *delayWorld) until(t time.Duration) { d.pass(d.ended.world + t - d.now) }

func (d *delayWorld) killLeader() {
	l := d.leader()
	l.crash("struck")
	d.after(time.Second, l.start)
}

func (d *delayWorld) powerCut() {
	d.until(5 * time.Second)
	d.killLeader()
	d.until(10 * time.Second)
	d.restartAll()
}

func (d *delayWorld) restartAll() {
	for _, m := range d.members {
		m.crash("power cut")
	}
	d.pass(500 * time.Millisecond)
	for _, m := range d.members {
		m.start()
	}
}

// snapshotThenPowerCut has member 1 miss the beginning. What it knows of the
// delay it has from a snapshot, and it leads when the delay ends.
func (d *delayWorld) snapshotThenPowerCut() {
	const late = 1
	d.cutOff(late)
	d.until(5 * time.Second)
	d.killLeader()
	d.until(6500 * time.Millisecond)
	d.network.reset()
	d.await(2*election, "snapshot", func() bool { return d.members[late].life.core.Status().Installed > 0 })
	d.makeLeader(late)
	d.until(10 * time.Second)
	d.restartAll()
	d.makeLeader(late)
}

// leaderDiesAtTheEnd has the delay end while nobody leads.
func (d *delayWorld) leaderDiesAtTheEnd() {
	d.until(lockDelay - 50*time.Millisecond)
	d.killLeader()
}

func (d *delayWorld) makeLeader(n int) {
	var asked *life
	var answer chan error
	d.await(10*election, "leader of choice", func() bool {
		l := d.leader()
		if l != nil && l.n != n && l.core.Status().Proposing && (l != asked || len(answer) > 0) {
			asked, answer = l, make(chan error, 1)
			l.event(func(c *core.Core) { c.Transfer(uint64(n+1), answer) })
		}
		return l != nil && l.n == n && l.core.Status().Proposing
	})
}

// verdict waits for the grant and judges when it came.
func (d *delayWorld) verdict() {
	d.await(lockDelay+10*election, "grant", func() bool { return d.granted.group != 0 })
	group, world := time.Duration(d.granted.group-d.ended.group), d.granted.world-d.ended.world
	d.t.Logf("granted after %v of group time and %v of the world's, of which %v without leader", group, world, d.leaderless)
	if group < lockDelay {
		d.fail("granted after %v of group time", group)
	}
	if group > lockDelay+2*tick {
		d.fail("granted no earlier than after %v of group time", group)
	}
	if latest := lockDelay + d.leaderless + time.Duration(len(d.history.leaders)-d.offices)*pulse + 2*tick; world > latest {
		d.fail("granted after %v of the world's time, want at most %v", world, latest)
	}
}
