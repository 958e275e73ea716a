package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// A TTL is a lower bound. No session ends before TTL after its last acknowledged
// renewal was sent, even if clocks differ by 1 % and leaders change faster than the
// TTL; and it ends within TTL plus two elections after the last renewal and the
// last change of leader.
func TestSession_TTLIsLowerBound(t *testing.T) {
	for _, c := range []struct {
		name           string
		holder, others rate
	}{
		{"slow holder, fast leaders", -maxSkew, 0},
		{"fast holder, slow leaders", 0, -maxSkew},
	} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				sim := newScriptedSimulation(t, seed, 3, faults{}, c.holder, c.others, c.others)
				sim.register(0)
				sim.program(0).backgroundTraffic()
				for range 8 {
					sim.sessionUnderLeaderChanges()
				}
			})
		}
	}
}

// sessionUnderLeaderChanges runs one session of member 0 from its opening to its
// end.
func (sim *simulation) sessionUnderLeaderChanges() {
	ttl := sim.between(1500*time.Millisecond, 3*time.Second)
	s := sim.openSession(0, ttl, 0, wire.Behavior_RELEASE)
	for end := sim.now + sim.between(ttl, 4*ttl); sim.now < end && s.endedAt == 0; {
		sim.changeLeader(0)
		sim.schedule(sim.between(0, ttl), func() {
			if s.endedAt == 0 {
				s.program.renew()
			}
		})
		sim.advance(sim.between(100*time.Millisecond, ttl/2))
	}
	sim.await(ttl+2*longestElection, "outcome of the last renewal", func() bool { return !sim.program(0).renewing })
	changes := sim.between(-ttl, 2*ttl) // either the renewals or the changes of leader stop first
	for end := sim.now + changes; sim.now < end && s.endedAt == 0; {
		sim.changeLeader(0)
		sim.advance(sim.between(100*time.Millisecond, ttl/2))
	}
	sim.awaitLeader()
	floor := s.renewalSent + ttl // no clock here is fast
	if s.endedAt == 0 {
		floor = max(floor, sim.history.ledSince+ttl) // a new leader grants the full TTL
	}
	sim.await(2*ttl+2*longestElection, "end of the session", func() bool { return s.endedAt != 0 })
	if s.endedAt < floor {
		sim.fail("a session ends at %v; its last renewal was sent at %v, so it must live until %v", s.endedAt, s.renewalSent, floor)
	}
	rest := max(s.renewalAcked, sim.history.ledSince)
	if late := rest + ttl + ttl*time.Duration(maxSkew)/million + 2*longestElection; s.endedAt > late {
		sim.fail("a session ends at %v; renewals and changes of leader stopped at %v, so it must end by %v", s.endedAt, rest, late)
	}
	sim.program(0).loseSessions()
}

// backgroundTraffic renews nothing, but each entry carries group time and may end a
// session too early.
func (p *program) backgroundTraffic() {
	p.after(p.sim.between(0, 100*time.Millisecond), func() {
		p.submit(unlockCommand("nothing", &simSession{}, 1, 1), false, func(*wire.Reply) { p.backgroundTraffic() })
	})
}

// changeLeader has the leader transfer its leadership or crash, unless it is the
// spared member.
func (sim *simulation) changeLeader(spared int) {
	proc := sim.leader()
	if proc == nil {
		return
	}
	if proc.n == spared || sim.chance(0.6) {
		proc.post(func(c *core.Core) { c.Transfer(0, make(chan error, 1)) })
		return
	}
	proc.crash("to change the leader")
	sim.schedule(sim.between(0, time.Second), proc.start)
}

const pausedTTL = 2 * time.Second

// A leader that is paused for 3 TTLs and resumes ends no session that was renewed
// at its successor.
func TestSession_SurvivesPausedLeader(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			sim := newScriptedSimulation(t, seed, 3, faults{})
			sessions := sim.renewOnEveryMember()
			paused := sim.leader()
			paused.pause(3 * pausedTTL)
			sim.awaitLeader()
			sim.advance(6 * pausedTTL)
			if sim.leader() == paused && sim.history.ledSince < paused.pausedUntil {
				sim.fail("no other member has replaced the paused leader")
			}
			for n, s := range sessions {
				if n != paused.n && s.endedAt != 0 {
					sim.fail("the session of member %d ended at %v", n, s.endedAt)
				}
			}
		})
	}
}

// A group that is paused as a whole, for longer than the TTLs, ends no session that
// is renewed on resuming: the pause counts as two ticks.
func TestSession_SurvivesPausedGroup(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			sim := newScriptedSimulation(t, seed, 3, faults{})
			sessions := sim.renewOnEveryMember()
			for _, m := range sim.members {
				m.process.pause(3 * pausedTTL)
			}
			sim.advance(3 * pausedTTL)
			sim.advance(3 * pausedTTL)
			for n, s := range sessions {
				if s.endedAt != 0 {
					sim.fail("the session of member %d ended at %v", n, s.endedAt)
				}
			}
		})
	}
}

// renewOnEveryMember opens a session on each member and renews it three times per
// TTL.
func (sim *simulation) renewOnEveryMember() (sessions []*simSession) {
	for n := range sim.members {
		sim.register(n)
		sessions = append(sessions, sim.openSession(n, pausedTTL, 0, wire.Behavior_RELEASE))
		sim.program(n).renewEvery(pausedTTL / 3)
	}
	sim.advance(sim.between(pausedTTL, 2*pausedTTL))
	return sessions
}
