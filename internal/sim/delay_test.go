package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// A lock-delay is measured in group time and survives failures of members. What a
// session held that was ended by force is granted not before its lock-delay has
// passed, and soon after.
//
// Soon: group time stands still without a leader, and a leader checks deadlines
// with each event, at least once per tick. So the grant comes within two ticks of
// group time, the second one for the entry in flight. In simulated time each change
// of leader adds the time until the next leader, and the time since the last entry
// before it: a new leader starts from the group time of the last entry.
func TestLockDelay_AcrossFailures(t *testing.T) {
	for _, subject := range resourceKinds() {
		for _, story := range []struct {
			name string
			tell func(*delayScenario)
		}{
			{"power loss", (*delayScenario).powerLoss},
			{"snapshot", (*delayScenario).snapshotThenPowerLoss},
			{"leader crash at expiry", (*delayScenario).leaderCrashAtExpiry},
		} {
			for seed := range uint64(3) {
				t.Run(fmt.Sprintf("%s/%s/%d", subject.name, story.name, seed), func(t *testing.T) {
					d := newDelayScenario(t, seed, subject)
					d.endHolder()
					story.tell(d)
					d.checkGrant()
				})
			}
		}
	}
}

const lockDelay = 20 * time.Second

// delayScenario has its former holder and its waiter on member 2, whose process is
// not restarted after a crash: the waiter's session has a long TTL, and its place
// in the queue is replicated. The other members renew, as in production, so that
// entries carry group time.
type delayScenario struct {
	*simulation
	resourceKind
	holder         *simSession
	waiter         *simSession
	ended, granted instant
	leaderless     time.Duration // between endedAt and grantedAt
	termsBefore    int           // terms that had a leader before endedAt
}

// instant is a time on both clocks; zero: not yet.
type instant struct {
	simulated time.Duration
	group     int64
}

const (
	contender     = 2 // the member of holder and waiter
	longTTL       = 5 * time.Minute
	renewalPeriod = 600 * time.Millisecond // between renewals
)

func newDelayScenario(t *testing.T, seed uint64, s resourceKind) *delayScenario {
	d := &delayScenario{simulation: scriptedWorld(t, seed, 3, faults{keepEntries: 3}), resourceKind: s}
	d.register(contender)
	d.holder = d.openSession(contender, longTTL, lockDelay, wire.Behavior_DELETE)
	d.waiter = d.openSession(contender, longTTL, 0, wire.Behavior_RELEASE)
	d.mustInvoke(contender, wire.Code_OK, s.acquire(d.holder, false))
	if s.waits {
		d.enqueueWaiter()
	}
	d.script = d.bystander
	for n := range contender {
		d.bystander(d.program(n))
	}
	return d
}

// enqueueWaiter queues the waiter. Its process may be down at the grant: the log
// shows it.
func (d *delayScenario) enqueueWaiter() {
	queued := false
	call := d.program(contender).call(d.acquire(d.waiter, true), false, func(_ wire.Ticket, _ *wire.Reply, more bool) { queued = queued || more })
	call.recheck = func(*observed, wire.Ticket) *wire.Reply { return nil }
	d.await(longestElection, "place in the queue", func() bool { return queued })
}

// bystander is the program of the other members: they renew, and if the resource
// has no queue they try to acquire it.
func (d *delayScenario) bystander(p *program) {
	if p.n == contender {
		return
	}
	p.register()
	var begin func()
	begin = func() {
		if !p.registered {
			p.after(tick, begin)
			return
		}
		s := p.newSession(longTTL, 0, wire.Behavior_RELEASE)
		p.renewEvery(renewalPeriod)
		if !d.waits {
			d.retryAcquire(p, s)
		}
	}
	begin()
}

// retryAcquire tries once per tick; the only permitted refusals are the holder and
// the remaining lock-delay.
func (d *delayScenario) retryAcquire(p *program, s *simSession) {
	again := func() { p.after(tick, func() { d.retryAcquire(p, s) }) }
	if !s.open {
		again()
		return
	}
	p.submit(d.acquire(s, false), false, func(r *wire.Reply) {
		switch r.GetCode() {
		case wire.Code_OK, wire.Code_LOCKED:
		case wire.Code_LOCK_DELAY:
			if left := time.Duration(r.GetDelay()); left <= 0 || left > lockDelay {
				d.fail("remaining lock-delay %v", left)
			}
		default:
			d.fail("member %d: %v", p.n, r)
		}
		again()
	})
}

// endHolder ends the holder's session by force and starts to observe.
func (d *delayScenario) endHolder() {
	d.advance(time.Second)
	d.holder.closing = true
	d.history.onEntry, d.onAdvance = d.observe, d.addLeaderless
	d.mustInvoke(0, wire.Code_OK, closeCommand(d.holder, false))
}

func (d *delayScenario) observe() {
	now, owner := instant{d.now, d.history.oracle.Now()}, d.owner(d.history.oracle)
	switch _, alive := d.history.oracle.Session(d.holder.id); {
	case alive || d.granted.group != 0:
	case d.ended.group == 0:
		d.ended, d.termsBefore = now, len(d.history.leaderOf)
	case !owner.IsZero():
		d.granted = now
		if d.waits && owner != d.waiter.id {
			d.fail("granted to session %s, ahead of the waiter", owner)
		}
	}
}

// addLeaderless adds up the time in which no leader advanced group time.
func (d *delayScenario) addLeaderless(passed time.Duration) {
	proc := d.leader()
	if d.ended.group != 0 && d.granted.group == 0 && (proc == nil || !proc.core.Status().Proposing) {
		d.leaderless += passed
	}
}

// advanceTo advances to a time after the session's end.
func (d *delayScenario) advanceTo(t time.Duration) { d.advance(d.ended.simulated + t - d.now) }

func (d *delayScenario) killLeader() {
	proc := d.leader()
	proc.crash("struck")
	d.schedule(time.Second, proc.start)
}

func (d *delayScenario) powerLoss() {
	d.advanceTo(5 * time.Second)
	d.killLeader()
	d.advanceTo(10 * time.Second)
	d.restartAll()
}

func (d *delayScenario) restartAll() {
	for _, m := range d.members {
		m.crash("power loss")
	}
	d.advance(500 * time.Millisecond)
	for _, m := range d.members {
		m.start()
	}
}

// snapshotThenPowerLoss isolates member 1 from the start, so that it knows the
// delay from a snapshot only. It leads when the delay ends.
func (d *delayScenario) snapshotThenPowerLoss() {
	const late = 1
	d.isolate(late)
	d.advanceTo(5 * time.Second)
	d.killLeader()
	d.advanceTo(6500 * time.Millisecond)
	d.network.heal()
	d.await(2*longestElection, "snapshot", func() bool { return d.members[late].process.core.Status().Installed > 0 })
	d.makeLeader(late)
	d.advanceTo(10 * time.Second)
	d.restartAll()
	d.makeLeader(late)
}

// leaderCrashAtExpiry has the delay end while there is no leader.
func (d *delayScenario) leaderCrashAtExpiry() {
	d.advanceTo(lockDelay - 50*time.Millisecond)
	d.killLeader()
}

func (d *delayScenario) makeLeader(n int) {
	var asked *process
	var answer chan error
	d.await(10*longestElection, "requested leader", func() bool {
		proc := d.leader()
		if proc != nil && proc.n != n && proc.core.Status().Proposing && (proc != asked || len(answer) > 0) {
			asked, answer = proc, make(chan error, 1)
			proc.post(func(c *core.Core) { c.Transfer(uint64(n+1), answer) })
		}
		return proc != nil && proc.n == n && proc.core.Status().Proposing
	})
}

// checkGrant waits for the grant and checks its time.
func (d *delayScenario) checkGrant() {
	d.await(lockDelay+10*longestElection, "grant", func() bool { return d.granted.group != 0 })
	group, world := time.Duration(d.granted.group-d.ended.group), d.granted.simulated-d.ended.simulated
	d.t.Logf("granted after %v of group time and %v of simulated time, of which %v without a leader", group, world, d.leaderless)
	if group < lockDelay {
		d.fail("granted after %v of group time, before the lock-delay has passed", group)
	}
	if group > lockDelay+2*tick {
		d.fail("granted only after %v of group time", group)
	}
	if latest := lockDelay + d.leaderless + time.Duration(len(d.history.leaderOf)-d.termsBefore)*renewalPeriod + 2*tick; world > latest {
		d.fail("granted after %v of simulated time, want at most %v", world, latest)
	}
}
