package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// Promise: a TTL is a lower bound. No session ends before TTL after its last
// acknowledged renewal was sent, also where clocks differ by 1 % and leaders
// change faster than the TTL; and it ends within TTL + 2 elections once
// renewals and changes of leader have stopped.
func TestSessionFloor(t *testing.T) {
	for _, c := range []struct {
		name           string
		holder, others rate
	}{
		{"slow holder, fast leaders", -apart, 0},
		{"fast holder, slow leaders", 0, -apart},
	} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				w := scriptedWorld(t, seed, 3, faults{}, c.holder, c.others, c.others)
				w.register(0)
				w.program(0).chatter()
				for range 8 {
					w.sessionOutlivesLeaders()
				}
			})
		}
	}
}

// sessionOutlivesLeaders is the life of one session, held by member 0.
func (w *world) sessionOutlivesLeaders() {
	ttl := w.between(1500*time.Millisecond, 3*time.Second)
	s := w.openSession(0, ttl, 0, wire.Behavior_RELEASE)
	for end := w.now + w.between(ttl, 4*ttl); w.now < end && s.ended == 0; {
		w.changeLeader(0)
		w.after(w.between(0, ttl), func() {
			if s.ended == 0 {
				s.program.renew()
			}
		})
		w.pass(w.between(100*time.Millisecond, ttl/2))
	}
	w.await(ttl+2*election, "rest of the renewals", func() bool { return !w.program(0).renewing })
	changes := w.between(-ttl, 2*ttl) // the one or the other stops first
	for end := w.now + changes; w.now < end && s.ended == 0; {
		w.changeLeader(0)
		w.pass(w.between(100*time.Millisecond, ttl/2))
	}
	w.awaitLeader()
	floor := s.sent + ttl // no clock here is fast
	if s.ended == 0 {
		floor = max(floor, w.history.office+ttl) // a new leader gives it in full
	}
	w.await(2*ttl+2*election, "end of the session", func() bool { return s.ended != 0 })
	if s.ended < floor {
		w.fail("a session ends at %v; its last renewal went at %v, and it has to live until %v", s.ended, s.sent, floor)
	}
	rest := max(s.acked, w.history.office)
	if late := rest + ttl + ttl*time.Duration(apart)/million + 2*election; s.ended > late {
		w.fail("a session ends at %v; renewals and changes of leader stopped at %v, so it ends by %v", s.ended, rest, late)
	}
	w.program(0).lose()
}

// chatter is traffic that renews nothing: each entry carries group time, and is
// an occasion to end a session too early.
func (p *program) chatter() {
	p.at(p.w.between(0, 100*time.Millisecond), func() {
		p.submit(unlockCommand("nothing", &simSession{}, 1, 1), false, func(*wire.Reply) { p.chatter() })
	})
}

// changeLeader has the leader hand over, or die, unless it is the one that is
// to be spared.
func (w *world) changeLeader(spared int) {
	l := w.leader()
	if l == nil {
		return
	}
	if l.n == spared || w.chance(0.6) {
		l.event(func(c *core.Core) { c.Transfer(0, make(chan error, 1)) })
		return
	}
	l.crash("to change the leader")
	w.after(w.between(0, time.Second), l.start)
}

const pausedTTL = 2 * time.Second

// Promise: a leader that was stopped for 3 TTLs and goes on ends no session
// that was renewed at its successor.
func TestPausedLeaderEndsNobody(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := scriptedWorld(t, seed, 3, faults{})
			held := w.everybodyRenews()
			stopped := w.leader()
			stopped.pause(3 * pausedTTL)
			w.awaitLeader()
			w.pass(6 * pausedTTL)
			if w.leader() == stopped && w.history.office < stopped.wakes {
				w.fail("nobody has taken over from the leader that was stopped")
			}
			for n, s := range held {
				if n != stopped.n && s.ended != 0 {
					w.fail("the session of member %d ended at %v", n, s.ended)
				}
			}
		})
	}
}

// Promise: a group that is stopped as a whole, for longer than the TTLs, ends
// nobody at waking who renews at once: the time in which nobody ran counts for
// two ticks.
func TestPausedGroupEndsNobody(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := scriptedWorld(t, seed, 3, faults{})
			held := w.everybodyRenews()
			for _, m := range w.members {
				m.life.pause(3 * pausedTTL)
			}
			w.pass(3 * pausedTTL)
			w.pass(3 * pausedTTL)
			for n, s := range held {
				if s.ended != 0 {
					w.fail("the session of member %d ended at %v", n, s.ended)
				}
			}
		})
	}
}

// everybodyRenews opens a session on each member that is renewed each third of
// its TTL.
func (w *world) everybodyRenews() (held []*simSession) {
	for n := range w.members {
		w.register(n)
		held = append(held, w.openSession(n, pausedTTL, 0, wire.Behavior_RELEASE))
		w.program(n).keepRenewing(pausedTTL / 3)
	}
	w.pass(w.between(pausedTTL, 2*pausedTTL))
	return held
}
