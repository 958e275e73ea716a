package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// A lock-delay is measured in group time and survives failures of members. When a
// session is ended by force, what it held is granted after its lock-delay, not
// before and soon after.
//
// Soon: group time stands still without a leader, and a leader checks deadlines
// with each event, at least once per tick. So the grant comes within two ticks of
// group time, the second one for the entry in flight. In simulated time each change
// of leader adds the time until the next leader, and the time since the last entry
// before it: a new leader starts from the group time of the last entry.
func TestLockDelay_AcrossFailures(t *testing.T) {
	for _, kind := range resourceKinds() {
		for _, scenario := range []struct {
			name string
			run  func(*delayScenario)
		}{
			{"power loss", (*delayScenario).powerLoss},
			{"snapshot", (*delayScenario).snapshotThenPowerLoss},
			{"leader crash at expiry", (*delayScenario).leaderCrashAtExpiry},
		} {
			for seed := range uint64(3) {
				t.Run(fmt.Sprintf("%s/%s/%d", kind.name, scenario.name, seed), func(t *testing.T) {
					sc := newDelayScenario(t, seed, kind)
					sc.endHolder()
					scenario.run(sc)
					sc.checkGrant()
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
	holder             *simSession
	waiter             *simSession
	endedAt, grantedAt instant
	leaderless         time.Duration // between endedAt and grantedAt
	termsBefore        int           // terms that had a leader before endedAt
}

// instant is a time on both clocks; zero: not yet.
type instant struct {
	simulated time.Duration
	group     int64
}

const (
	contender     = 2 // the member of holder and waiter
	longTTL       = 5 * time.Minute
	renewalPeriod = 600 * time.Millisecond
)

func newDelayScenario(t *testing.T, seed uint64, s resourceKind) *delayScenario {
	sc := &delayScenario{simulation: newScriptedSimulation(t, seed, 3, faults{keepEntries: 3}), resourceKind: s}
	sc.register(contender)
	sc.holder = sc.openSession(contender, longTTL, lockDelay, wire.Behavior_DELETE)
	sc.waiter = sc.openSession(contender, longTTL, 0, wire.Behavior_RELEASE)
	sc.mustInvoke(contender, wire.Code_OK, s.acquire(sc.holder, false))
	if s.waits {
		sc.enqueueWaiter()
	}
	sc.script = sc.bystander
	for n := range contender {
		sc.bystander(sc.program(n))
	}
	return sc
}

// enqueueWaiter queues the waiter. Its process may be down at the grant: the log
// shows it.
func (sc *delayScenario) enqueueWaiter() {
	queued := false
	call := sc.program(contender).call(sc.acquire(sc.waiter, true), false, func(_ wire.Ticket, _ *wire.Reply, more bool) { queued = queued || more })
	call.recheck = func(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }
	sc.await(longestElection, "place in the queue", func() bool { return queued })
}

// bystander is the program of the other members: they renew, and if the resource
// has no queue they try to acquire it.
func (sc *delayScenario) bystander(p *program) {
	if p.n == contender {
		return
	}
	p.register()
	var open func()
	open = func() {
		if !p.registered {
			p.after(tick, open)
			return
		}
		s := p.newSession(longTTL, 0, wire.Behavior_RELEASE)
		p.renewEvery(renewalPeriod)
		if !sc.waits {
			sc.retryAcquire(p, s)
		}
	}
	open()
}

// retryAcquire tries once per tick; the only permitted refusals are the holder and
// the remaining lock-delay.
func (sc *delayScenario) retryAcquire(p *program, s *simSession) {
	retry := func() { p.after(tick, func() { sc.retryAcquire(p, s) }) }
	if !s.open {
		retry()
		return
	}
	p.submit(sc.acquire(s, false), false, func(r *wire.Reply) {
		switch r.GetCode() {
		case wire.Code_OK, wire.Code_LOCKED:
		case wire.Code_LOCK_DELAY:
			if remaining := time.Duration(r.GetDelay()); remaining <= 0 || remaining > lockDelay {
				sc.fail("remaining lock-delay %v", remaining)
			}
		default:
			sc.fail("member %d: %v", p.n, r)
		}
		retry()
	})
}

// endHolder ends the holder's session by force and starts to observe.
func (sc *delayScenario) endHolder() {
	sc.advance(time.Second)
	sc.holder.closing = true
	sc.history.onEntry, sc.onAdvance = sc.observe, sc.addLeaderless
	sc.mustInvoke(0, wire.Code_OK, closeCommand(sc.holder, false))
}

func (sc *delayScenario) observe() {
	now, owner := instant{sc.now, sc.history.oracle.Now()}, sc.owner(sc.history.oracle)
	switch _, alive := liveSession(sc.history.oracle, sc.holder.id); {
	case alive || sc.grantedAt.group != 0:
	case sc.endedAt.group == 0:
		sc.endedAt, sc.termsBefore = now, len(sc.history.leaderOf)
	case !owner.IsZero():
		sc.grantedAt = now
		if sc.waits && owner != sc.waiter.id {
			sc.fail("granted to session %s, ahead of the waiter", owner)
		}
	}
}

// addLeaderless adds up the time in which no leader advanced group time.
func (sc *delayScenario) addLeaderless(d time.Duration) {
	proc := sc.leader()
	if sc.endedAt.group != 0 && sc.grantedAt.group == 0 && (proc == nil || !proc.core.Status().Proposing) {
		sc.leaderless += d
	}
}

// advanceTo advances to a time after the session's end.
func (sc *delayScenario) advanceTo(t time.Duration) { sc.advance(sc.endedAt.simulated + t - sc.now) }

func (sc *delayScenario) killLeader() {
	proc := sc.leader()
	proc.crash("killed")
	sc.schedule(time.Second, proc.start)
}

func (sc *delayScenario) powerLoss() {
	sc.advanceTo(5 * time.Second)
	sc.killLeader()
	sc.advanceTo(10 * time.Second)
	sc.restartAll()
}

func (sc *delayScenario) restartAll() {
	for _, m := range sc.members {
		m.crash("power loss")
	}
	sc.advance(500 * time.Millisecond)
	for _, m := range sc.members {
		m.start()
	}
}

// snapshotThenPowerLoss isolates member 1 from the start, so that it knows the
// delay from a snapshot only. It leads when the delay ends.
func (sc *delayScenario) snapshotThenPowerLoss() {
	const lagging = 1
	sc.isolate(lagging)
	sc.advanceTo(5 * time.Second)
	sc.killLeader()
	sc.advanceTo(6500 * time.Millisecond)
	sc.network.heal()
	sc.await(2*longestElection, "snapshot", func() bool { return sc.members[lagging].process.core.Status().Installed > 0 })
	sc.makeLeader(lagging)
	sc.advanceTo(10 * time.Second)
	sc.restartAll()
	sc.makeLeader(lagging)
}

// leaderCrashAtExpiry has the delay end while there is no leader.
func (sc *delayScenario) leaderCrashAtExpiry() {
	sc.advanceTo(lockDelay - 50*time.Millisecond)
	sc.killLeader()
}

func (sc *delayScenario) makeLeader(n int) {
	var requested *process
	var answer chan error
	sc.await(10*longestElection, "requested leader", func() bool {
		proc := sc.leader()
		if proc != nil && proc.n != n && proc.core.Status().Proposing && (proc != requested || len(answer) > 0) {
			requested, answer = proc, make(chan error, 1)
			proc.post(func(c *core.Core) { c.Transfer(uint64(n+1), answer) })
		}
		return proc != nil && proc.n == n && proc.core.Status().Proposing
	})
}

// checkGrant waits for the grant and checks its time.
func (sc *delayScenario) checkGrant() {
	sc.await(lockDelay+10*longestElection, "grant", func() bool { return sc.grantedAt.group != 0 })
	group, simulated := time.Duration(sc.grantedAt.group-sc.endedAt.group), sc.grantedAt.simulated-sc.endedAt.simulated
	sc.t.Logf("granted after %v of group time and %v of simulated time, of which %v without a leader", group, simulated, sc.leaderless)
	if group < lockDelay {
		sc.fail("granted after %v of group time, before the lock-delay has passed", group)
	}
	if group > lockDelay+2*tick {
		sc.fail("granted only after %v of group time", group)
	}
	if latest := lockDelay + sc.leaderless + time.Duration(len(sc.history.leaderOf)-sc.termsBefore)*renewalPeriod + 2*tick; simulated > latest {
		sc.fail("granted after %v of simulated time, want at most %v", simulated, latest)
	}
}
