package sim

import (
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// What directed runs have in common: a world in which nothing goes wrong and
// nobody does anything but what the test says.

// election is the longest that one takes which meets no trouble: the timeout
// that raft draws is below two election timeouts.
const election = 2 * electionTicks * tick

// traffic counts what members send each other.
type traffic struct {
	messages map[raftpb.MessageType]int
	forwards int
}

func scriptedWorld(t *testing.T, seed uint64, members int, f faults, rates ...rate) *world {
	cryptotest.SetGlobalRandom(t, seed)
	w := newWorld(t, seed)
	w.script = func(*program) {}
	f.w = w
	if f.keep == 0 {
		f.keep = 10_000
	}
	for i := range members {
		m := newSimMember(w, i)
		if i < len(rates) {
			m.rate = rates[i]
		}
		w.members = append(w.members, m)
	}
	w.found(f)
	t.Cleanup(w.end)
	w.awaitLeader()
	return w
}

// leader is the member that leads in the newest term, if it is up.
func (w *world) leader() *life {
	var leader *life
	for _, m := range w.members {
		if l := m.life; l != nil && l.core.Status().Leads && (leader == nil || l.core.Status().Term > leader.core.Status().Term) {
			leader = l
		}
	}
	return leader
}

// awaitLeader waits until somebody leads and group time runs.
func (w *world) awaitLeader() {
	w.t.Helper()
	w.await(5*election, "leader", func() bool { l := w.leader(); return l != nil && l.core.Status().Proposing })
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	end := w.now + d
	w.after(d, func() {})
	w.run("a while", func() bool { return w.now >= end })
}

// program is what runs on a member.
func (w *world) program(n int) *program { return w.members[n].life.program }

// ask has a member submit a command and waits for its first outcome.
func (w *world) ask(n int, c *wire.Command) *wire.Reply {
	w.t.Helper()
	var answer *wire.Reply
	w.program(n).call(c, false, func(_ wire.Ticket, r *wire.Reply, _ bool) {
		if answer == nil {
			answer = r
		}
	})
	w.await(10*election, "outcome", func() bool { return answer != nil })
	return answer
}

// must is ask for a command that has to succeed.
func (w *world) must(n int, code wire.Code, c *wire.Command) *wire.Reply {
	w.t.Helper()
	r := w.ask(n, c)
	if r.GetCode() != code {
		w.fail("member %d: %v is answered %v, want %v", n, c, r, code)
	}
	return r
}

// register makes programs known to the group.
func (w *world) register(members ...int) {
	w.t.Helper()
	for _, n := range members {
		w.program(n).register()
		w.await(10*election, "registration", func() bool { return w.program(n).registered })
	}
}

// openSession gives a member's program its session.
func (w *world) openSession(n int, ttl, delay time.Duration, behavior wire.Behavior) *simSession {
	w.t.Helper()
	s := w.program(n).newSession(ttl, delay, behavior)
	w.await(10*election, "session", func() bool { return s.open })
	return s
}

func (p *program) newSession(ttl, delay time.Duration, behavior wire.Behavior) *simSession {
	s := &simSession{program: p, id: p.w.id(), incarnation: p.incarnation, ttl: ttl, delay: delay, behavior: behavior}
	p.session = s
	p.open(s)
	return s
}

// keepRenewing renews from now on, as long as the process lives.
func (p *program) keepRenewing(every time.Duration) {
	p.renew()
	p.at(p.lasts(every), func() { p.keepRenewing(every) })
}
