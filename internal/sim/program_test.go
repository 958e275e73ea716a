package sim

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// program is what a process does with its member: it registers, renews a session,
// and its handles acquire and release. When its registration has expired it
// registers again.
type program struct {
	*process
	incarnation   wire.ID
	attempt       uint32
	registered    bool
	renewing      bool
	renewals      int           // started so far
	mutedUntil    time.Duration // does not renew before
	session       *simSession
	noTTL         *simSession // the session without a TTL
	inFlight      int         // calls and reads
	cycles        int         // finished since draining
	terminated    bool
	leaving       bool // its removal is requested
	closingOrphan bool // closes a session of a lost member by force
	writing       bool
	checkInFlight bool
	knownKeys     map[string]*wire.KeyMeta // metadata of keys, from the last replies
}

// simSession is a session as its holder sees it.
type simSession struct {
	program      *program
	id           wire.ID
	incarnation  wire.ID
	ttl, delay   time.Duration
	behavior     wire.Behavior
	checks       []string
	deadline     time.Duration // on the holder's clock: the holder relies on it until then
	renewalSent  time.Duration // simulated time: when the last acknowledged renewal was sent
	renewalAcked time.Duration // and when its outcome arrived
	endedAt      time.Duration // when the log ended it; 0: not yet
	open         bool
	lost         bool
	closing      bool
	handles      []*handle
}

const (
	incarnationTTL = 5 * time.Second
	longestTTL     = 4 * time.Second // of sessions
)

func newProgram(proc *process) *program {
	p := &program{process: proc, incarnation: proc.core.Incarnation(), knownKeys: make(map[string]*wire.KeyMeta)}
	if proc.sim.script != nil {
		proc.after(0, func() { proc.sim.script(p) })
		return p
	}
	proc.after(0, p.register)
	proc.after(proc.sim.between(0, 100*time.Millisecond), p.act)
	return p
}

func (p *program) terminate() {
	p.terminated = true
	p.session.markLost()
	p.noTTL.markLost()
}

// submit sends a command. on receives its first outcome, or nil if there will be
// none.
func (p *program) submit(command *wire.Command, urgent bool, on func(*wire.Reply)) *simCall {
	return p.call(command, urgent, func(_ wire.Ticket, r *wire.Reply, more bool) {
		if more {
			p.sim.fail("member %d: %v has two outcomes", p.n, command)
		}
		on(r)
	})
}

// call posts to the core from an event of its own, since callbacks run within one.
func (p *program) call(command *wire.Command, urgent bool, on func(wire.Ticket, *wire.Reply, bool)) *simCall {
	body, c := p.encode(command), p.newCall(on)
	c.op = p.sim.clients.invoked(p, command)
	p.after(0, func() { p.post(func(to *core.Core) { to.Submit(body, c, urgent) }) })
	return c
}

func (p *program) newCall(on func(wire.Ticket, *wire.Reply, bool)) *simCall {
	p.inFlight++
	return &simCall{program: p, onOutcome: on}
}

func (p *program) encode(command *wire.Command) []byte {
	body, err := proto.Marshal(command)
	if err != nil {
		p.sim.fail("encode a command: %v", err)
	}
	return body
}

func (p *program) register() {
	body, call := p.registration()
	p.post(func(c *core.Core) { c.Submit(body, call, true) })
}

func (p *program) registration() ([]byte, core.Call) {
	p.sim.clients.processReplaced(p)
	p.attempt++
	attempt := p.attempt
	command := &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{
		Member: p.id(), Boot: p.boot, Attempt: attempt, Ttl: int64(incarnationTTL),
	}}}
	return p.encode(command), p.newCall(func(_ wire.Ticket, r *wire.Reply, _ bool) {
		if attempt != p.attempt || r == nil || r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
			return // replaced, or expired before its outcome arrived
		}
		if r.GetCode() == wire.Code_REMOVED { // as in Open, the member stays until it is out of the configuration: its vote may be needed
			p.leaving = true
			return
		}
		if r.GetCode() != wire.Code_OK {
			p.sim.fail("member %d: register: %v", p.n, r)
		}
		p.registered, p.leaving = true, false
	})
}

// registrationExpired registers a new incarnation, as the client engine does.
func (p *program) registrationExpired(incarnation wire.ID) {
	p.after(0, func() {
		p.post(func(c *core.Core) {
			if c.Incarnation() != incarnation {
				return
			}
			p.sim.trace("the registration of member %d has expired", p.n)
			p.incarnation, p.registered = p.sim.newID(), false
			p.loseSessions()
			registration, call := p.registration()
			c.Reincarnate(p.incarnation, registration, call)
		})
	})
}

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

// act is one step of the program.
func (p *program) act() {
	pause := p.sim.between(time.Millisecond, 50*time.Millisecond)
	p.after(pause, p.act)
	if !p.registered || p.leaving || p.sim.programsStopped {
		return
	}
	p.renew()
	p.updateCheck()
	p.closeOrphans()
	s := p.session
	switch {
	case s != nil && (s.lost || s.open && p.clock() >= s.deadline):
		p.sim.trace("member %d has lost session %s", p.n, s.id)
		p.closeExpired(s)
	case s == nil:
		p.openSession()
	case s.open:
		s.handles[p.sim.rng.IntN(len(s.handles))].act()
		p.maybeRead()
		p.write()
	}
	p.useNoTTLSession()
}

func (p *program) openSession() {
	s := &simSession{program: p, id: p.sim.newID(), incarnation: p.incarnation, ttl: p.sim.between(1500*time.Millisecond, longestTTL)}
	for i := range 4 {
		s.handles = append(s.handles, &handle{session: s, n: uint64(i + 1), names: locks, reentrant: i%2 == 0})
	}
	for range 2 {
		s.addHandle(wire.Space_ELECTION, elections[:2])
		s.addHandle(wire.Space_SEMAPHORE, semaphores[:2])
	}
	s.behavior = wire.Behavior(p.sim.rng.IntN(2))
	if p.sim.faults.checks {
		s.checks = checkSets()[p.sim.rng.IntN(4)]
	}
	if p.sim.chance(0.3) {
		s.delay = time.Second
	}
	p.session = s
	p.open(s)
}

func (p *program) open(s *simSession) {
	p.sim.history.sessions[s.id] = s
	acknowledged := s.startRenewal()
	p.submit(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
		Id: s.id[:], Ttl: int64(s.ttl), LockDelay: int64(s.delay), Behavior: s.behavior, Checks: s.checks,
	}}}, true, func(r *wire.Reply) {
		if r.GetCode() == wire.Code_OK && !s.lost {
			s.open = true
			acknowledged()
		} else {
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
		s.deadline = max(s.deadline, clock+s.ttl-s.ttl/100)
		s.renewalSent, s.renewalAcked = sent, sim.now
	}
}

// closeExpired closes a session whose deadline has passed here.
func (p *program) closeExpired(s *simSession) {
	s.lost, s.closing = true, true
	p.session = nil
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
	acknowledged := func() {}
	if s != nil {
		acknowledged = s.startRenewal()
	}
	p.submit(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}, true, func(r *wire.Reply) {
		p.after(p.simulatedTime(500*time.Millisecond), func() { p.renewing = false })
		if r.GetCode() == wire.Code_OK && s == p.session && s != nil && s.open && !s.lost && p.clock() < s.deadline {
			acknowledged()
		}
	})
}

// sessionEnded handles the end of a session in the log.
func (p *program) sessionEnded(e wire.Ended) {
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
	for _, s := range []*simSession{p.session, p.noTTL} {
		if s == nil || !s.open {
			continue
		}
		if _, alive := m.(*observed).Session(s.id); !alive {
			s.lost = true
		}
	}
}

// atRest reports whether a draining program has finished some more cycles of
// acquire and release and has nothing in flight but a renewal.
func (p *program) atRest() bool {
	if p.leaving || p.session == nil || !p.session.open || p.cycles < 2 || p.renewing && p.inFlight > 1 || !p.renewing && p.inFlight > 0 {
		return false
	}
	for _, h := range p.handles() {
		if h.state != idle || h.reclaim {
			return false
		}
	}
	return p.noTTL != nil && p.noTTL.open
}

// handles returns those of both sessions.
func (p *program) handles() []*handle {
	var all []*handle
	for _, s := range []*simSession{p.session, p.noTTL} {
		if s != nil {
			all = append(all, s.handles...)
		}
	}
	return all
}

func (s *simSession) addHandle(space wire.Space, names []string) {
	s.handles = append(s.handles, &handle{session: s, n: uint64(len(s.handles) + 1), space: space, names: names})
}

// unfinished describes what is in progress.
func (p *program) unfinished() string {
	s := fmt.Sprintf("member %d: %d cycles, %d in flight, renewing %t, writing %t", p.n, p.cycles, p.inFlight, p.renewing, p.writing)
	for _, h := range p.handles() {
		if h.state != idle || h.reclaim {
			s += fmt.Sprintf("; handle %d of %s: state %d, reclaim %t", h.n, h.lock, h.state, h.reclaim)
		}
	}
	return s
}
