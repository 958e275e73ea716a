package sim

import (
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/leaseclock"
	"github.com/conclave-go/conclave/internal/wire"
)

// simSession is a session as its holder sees it.
type simSession struct {
	program        *program
	id             wire.ID
	incarnation    wire.ID
	ttl, lockDelay time.Duration
	behavior       wire.Behavior
	checks         []string
	deadline       time.Duration // on the holder's clock: the holder relies on it until then
	renewalSent    time.Duration // simulated time: when the last acknowledged renewal was sent
	renewalAcked   time.Duration // and when its outcome arrived
	endedAt        time.Duration // when the log ended it; 0: not yet
	open           bool
	lost           bool
	closing        bool
	handles        []*handle
	keeper         *keeper  // nil: no lock lingers
	sharers        *sharers // likewise
	setHandle      *handle  // nil: the session takes no sets
	single         *handle  // takes locks of sets alone; nil: none does
	attaches       bool     // an earlier process opened the session
	runners        []*runner
	name           string         // by which the workers of an earlier session are known; empty: by the member
	workers        []*shardWorker // of sets of shards
	task           *task          // nil: the session does many things at a time
	leftFence      uint64         // of a set that an earlier process had in it; 0: none that is of use
}

const (
	incarnationTTL = 8 * time.Second // longer than machine.MinSilence, so that deaths of registered processes are recorded too
	longestTTL     = 4 * time.Second // of sessions
)

// loseSessions gives up both sessions, as when the registration has expired.
func (p *program) loseSessions() {
	p.session.markLost()
	p.noTTL.markLost()
	p.session, p.noTTL = nil, nil
}

// markLost marks the session, if there is one, as of no further use.
func (s *simSession) markLost() {
	if s != nil {
		s.lost = true
	}
}

// openSession opens the session with a TTL, with random properties.
func (p *program) openSession() {
	s := &simSession{program: p, id: p.sim.newID(), incarnation: p.incarnation, ttl: p.sim.sessionTTL()}
	if !s.addTask() {
		s.addHandles()
	}
	s.addRunners(2, false)
	s.addWorkers(1+int(p.sim.shardsRNG.Uint32N(2)), false)
	s.behavior = wire.Behavior(p.sim.rng.IntN(2))
	if p.sim.faults.checks && p.remote == nil { // a client has no checks
		s.checks = checkSets()[p.sim.rng.IntN(4)]
	}
	if p.sim.chance(0.3) {
		s.lockDelay = time.Second
	}
	p.session = s
	p.open(s)
}

// addHandles gives the session those of locks, elections, semaphores and sets.
func (s *simSession) addHandles() {
	for i := range 4 {
		s.handles = append(s.handles, &handle{session: s, n: uint64(i + 1), names: locks, reentrant: i%2 == 0})
	}
	for range 2 {
		s.addHandle(wire.Space_ELECTION, elections[:2])
		s.addHandle(wire.Space_SEMAPHORE, semaphores[:2])
	}
	s.addSetHandle()
	if s.program.sim.faults.lingers {
		s.addKeeper()
		s.addSharers()
	}
}

func (p *program) open(s *simSession) {
	p.sim.history.sessions[s.id] = s
	acknowledged, replacements := s.startRenewal(), p.replacements
	p.submit(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
		Id: s.id[:], Name: s.name, Ttl: int64(s.ttl), LockDelay: int64(s.lockDelay), Behavior: s.behavior, Checks: s.checks,
	}}}, true, func(r *wire.Reply) {
		switch {
		case r.GetCode() == wire.Code_OK && p.replacements != replacements: // as in the client: it may have ended since
			p.discard(s)
		case r.GetCode() == wire.Code_OK && !s.lost:
			s.open = true
			acknowledged()
		default:
			s.lost = true
			p.openRefused(s, r)
		}
	})
}

// startRenewal notes when a renewal is sent. The caller calls the returned function
// when it is acknowledged. The holder's own deadline is 1 % earlier than the
// group's, as clocks may differ by that much.
func (s *simSession) startRenewal() (acknowledged func()) {
	sim, clock := s.program.sim, s.program.clock()
	sent := sim.now
	return func() {
		s.deadline = max(s.deadline, clock+leaseclock.Trusted(s.ttl))
		s.renewalSent, s.renewalAcked = sent, sim.now
	}
}

// closeExpired closes a session whose deadline has passed here.
func (p *program) closeExpired(s *simSession) {
	p.session = nil
	p.discard(s)
}

// discard gives a session up and closes it.
func (p *program) discard(s *simSession) {
	s.lost, s.closing = true, true
	p.submit(&wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: s.id[:]}}}, true, func(*wire.Reply) {})
}

// renew keeps one renewal in flight, as production does. Only an acknowledged one
// extends the deadline, counted from when it was sent.
func (p *program) renew() {
	if p.renewing || p.sim.now < p.mutedUntil {
		return
	}
	p.renewing = true
	p.renewals++
	s := p.session
	acknowledged, sent := func() {}, leaseclock.Instant(p.clock())
	if s != nil {
		acknowledged = s.startRenewal()
	}
	p.gateway.renew(func(r *wire.Reply) {
		if r.GetCode() == wire.Code_OK {
			p.heard.Note(sent, r.GetNow())
		}
		p.after(p.simulatedTime(500*time.Millisecond), func() { p.renewing = false })
		if r.GetCode() == wire.Code_OK && s == p.session && s != nil && s.open && !s.lost && p.clock() < s.deadline {
			acknowledged()
		}
	})
}

// sessionEnded handles the end of a session in the log.
func (p *program) sessionEnded(e fact.Ended) {
	if e.Unbound {
		if e.Incarnation == p.incarnation {
			p.noTTL.markLost()
			p.noTTL = nil // to be attached again
		}
		return
	}
	for _, s := range []*simSession{p.session, p.noTTL} {
		if s != nil && s.id == e.Session {
			s.lost = true
		}
	}
}

// restored compares the sessions with the state of a snapshot.
func (p *program) restored(m core.Machine) {
	p.replaced(func(id wire.ID) bool {
		_, alive := liveSession(m.(*observed).Machine, id)
		return alive
	})
}

// replaced handles that outcomes may have been skipped: alive reports which sessions
// exist from where on they are delivered again.
func (p *program) replaced(alive func(wire.ID) bool) {
	p.replacements++
	p.followAgain()
	for _, s := range []*simSession{p.session, p.noTTL} {
		if s != nil && s.open && !alive(s.id) {
			s.lost = true
		}
	}
	if s := p.session; s != nil && s.keeper != nil {
		s.keeper.recall(func(*tenure) bool { return true }) // as in the client: a recall may have been skipped
		s.sharers.recall(func(*sharedTenure) bool { return true })
	}
}

func (s *simSession) addHandle(space wire.Space, names []string) {
	s.handles = append(s.handles, &handle{session: s, n: uint64(len(s.handles) + 1), space: space, names: names})
}

// newSession opens a session with given properties and no handles.
func (p *program) newSession(ttl, delay time.Duration, behavior wire.Behavior) *simSession {
	s := &simSession{program: p, id: p.sim.newID(), incarnation: p.incarnation, ttl: ttl, lockDelay: delay, behavior: behavior}
	p.session = s
	p.open(s)
	return s
}

// renewEvery renews from now on, while the process runs.
func (p *program) renewEvery(every time.Duration) {
	p.renew()
	p.after(p.simulatedTime(every), func() { p.renewEvery(every) })
}
