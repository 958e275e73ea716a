package sim

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// program is what a process does with its member: it makes itself known, keeps
// a session alive, and its handles lock and unlock. When the group has forgotten
// it, it begins anew.
type program struct {
	*life
	incarnation wire.ID
	attempt     uint32
	registered  bool
	renewing    bool
	renewals    int           // begun
	muted       time.Duration // does not renew until then
	session     *simSession
	keeper      *simSession // without TTL
	waiting     int         // calls under way, and reads
	cycles      int         // finished since the world is calm
	over        bool
	quitting    bool // it is about to leave
	closing     bool // a dead member's session, by force
	writing     bool
	checking    bool
	known       map[string]*wire.KeyMeta // of keys, as far as it has heard
}

// simSession is a session as its holder sees it.
type simSession struct {
	program     *program
	id          wire.ID
	incarnation wire.ID
	ttl, delay  time.Duration
	behavior    wire.Behavior
	checks      []string
	deadline    time.Duration // on the holder's clock: he counts on it until then
	sent        time.Duration // world's time: the last acknowledged renewal went
	acked       time.Duration // and was heard of
	ended       time.Duration // the log has ended it; 0: not yet
	open        bool
	lost        bool
	closing     bool
	handles     []*handle
}

const (
	incarnationTTL = 5 * time.Second
	longestTTL     = 4 * time.Second // of sessions
)

func newProgram(l *life) *program {
	p := &program{life: l, incarnation: l.core.Incarnation(), known: make(map[string]*wire.KeyMeta)}
	if l.w.script != nil {
		l.at(0, func() { l.w.script(p) })
		return p
	}
	l.at(0, p.register)
	l.at(l.w.between(0, 100*time.Millisecond), p.act)
	return p
}

func (p *program) dies() {
	p.over = true
	p.session.over()
	p.keeper.over()
}

// submit sends a command; on hears its first outcome, or nil when none will come.
func (p *program) submit(command *wire.Command, urgent bool, on func(*wire.Reply)) *simCall {
	return p.call(command, urgent, func(_ wire.Ticket, r *wire.Reply, more bool) {
		if more {
			p.w.fail("member %d: %v is answered in two parts", p.n, command)
		}
		on(r)
	})
}

// call posts to the core, as callbacks of the loop may.
func (p *program) call(command *wire.Command, urgent bool, on func(wire.Ticket, *wire.Reply, bool)) *simCall {
	body, c := p.encoded(command), p.newCall(on)
	c.op = p.w.outside.calls(p, command)
	p.at(0, func() { p.event(func(to *core.Core) { to.Submit(body, c, urgent) }) })
	return c
}

func (p *program) newCall(on func(wire.Ticket, *wire.Reply, bool)) *simCall {
	p.waiting++
	return &simCall{program: p, on: on}
}

func (p *program) encoded(command *wire.Command) []byte {
	body, err := proto.Marshal(command)
	if err != nil {
		p.w.fail("encoding a command: %v", err)
	}
	return body
}

func (p *program) register() {
	body, call := p.registration()
	p.event(func(c *core.Core) { c.Submit(body, call, true) })
}

func (p *program) registration() ([]byte, core.Call) {
	p.w.outside.replaces(p)
	p.attempt++
	attempt := p.attempt
	command := &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{
		Member: p.id(), Boot: p.boot, Attempt: attempt, Ttl: int64(incarnationTTL),
	}}}
	return p.encoded(command), p.newCall(func(_ wire.Ticket, r *wire.Reply, _ bool) {
		if attempt != p.attempt || r == nil || r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
			return // replaced, or to be: it was forgotten before it heard of its registration
		}
		if r.GetCode() == wire.Code_REMOVED { // as Open does, it stays until it is out: its vote may be needed
			p.quitting = true
			return
		}
		if r.GetCode() != wire.Code_OK {
			p.w.fail("member %d cannot register: %v", p.n, r)
		}
		p.registered, p.quitting = true, false
	})
}

// forgotten is Node.forgotten.
func (p *program) forgotten(incarnation wire.ID) {
	p.at(0, func() {
		p.event(func(c *core.Core) {
			if c.Incarnation() != incarnation {
				return
			}
			p.w.say("%d is forgotten", p.n)
			p.incarnation, p.registered = p.w.id(), false
			p.lose()
			registration, call := p.registration()
			c.Reincarnate(p.incarnation, registration, call)
		})
	})
}

func (p *program) lose() {
	p.session.over()
	p.keeper.over()
	p.session, p.keeper = nil, nil
}

// over says that this process has nothing more to do with the session, if any.
func (s *simSession) over() {
	if s != nil {
		s.lost = true
	}
}

// act is what the program does every now and then.
func (p *program) act() {
	pause := p.w.between(time.Millisecond, 50*time.Millisecond)
	p.at(pause, p.act)
	if !p.registered || p.quitting || p.w.silent {
		return
	}
	p.renew()
	p.check()
	p.clearUp()
	s := p.session
	switch {
	case s != nil && (s.lost || s.open && p.clock() >= s.deadline):
		p.w.say("%d has lost session %s", p.n, s.id)
		p.abandon(s)
	case s == nil:
		p.openSession()
	case s.open:
		s.handles[p.w.rng.IntN(len(s.handles))].act()
		p.read()
		p.write()
	}
	p.keep()
}

func (p *program) openSession() {
	s := &simSession{program: p, id: p.w.id(), incarnation: p.incarnation, ttl: p.w.between(1500*time.Millisecond, longestTTL)}
	for i := range 4 {
		s.handles = append(s.handles, &handle{session: s, n: uint64(i + 1), names: locks, reentrant: i%2 == 0})
	}
	for range 2 {
		s.addHandle(wire.Space_ELECTION, elections[:2])
		s.addHandle(wire.Space_SEMAPHORE, semaphores[:2])
	}
	s.behavior = wire.Behavior(p.w.rng.IntN(2))
	if p.w.faults.checks {
		s.checks = checkSets()[p.w.rng.IntN(4)]
	}
	if p.w.chance(0.3) {
		s.delay = time.Second
	}
	p.session = s
	p.open(s)
}

func (p *program) open(s *simSession) {
	p.w.history.sessions[s.id] = s
	acknowledged := s.sends()
	p.submit(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
		Id: s.id[:], Ttl: int64(s.ttl), LockDelay: int64(s.delay), Behavior: s.behavior, Checks: s.checks,
	}}}, true, func(r *wire.Reply) {
		if r.GetCode() == wire.Code_OK && !s.lost {
			s.open = true
			acknowledged()
		} else {
			s.lost = true
			p.unhealthy(s, r)
		}
	})
}

// sends notes when a renewal is sent. The function that it returns is for when
// the group has acknowledged it: the holder's own deadline is 1 % earlier than
// the group's, for clocks that differ by as much.
func (s *simSession) sends() (acknowledged func()) {
	w, clock := s.program.w, s.program.clock()
	sent := w.now
	return func() {
		s.deadline = max(s.deadline, clock+s.ttl-s.ttl/100)
		s.sent, s.acked = sent, w.now
	}
}

// abandon gives a session up that is past its deadline here.
func (p *program) abandon(s *simSession) {
	s.lost, s.closing = true, true
	p.session = nil
	p.submit(&wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: s.id[:]}}}, true, func(*wire.Reply) {})
}

// renew is the renewal of the root: one under way at a time, and only what the
// group acknowledges counts, from the moment at which it was sent.
func (p *program) renew() {
	if p.renewing || p.w.now < p.muted {
		return
	}
	p.renewing = true
	p.renewals++
	s := p.session
	acknowledged := func() {}
	if s != nil {
		acknowledged = s.sends()
	}
	p.submit(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}, true, func(r *wire.Reply) {
		p.at(p.lasts(500*time.Millisecond), func() { p.renewing = false })
		if r.GetCode() == wire.Code_OK && s == p.session && s != nil && s.open && !s.lost && p.clock() < s.deadline {
			acknowledged()
		}
	})
}

// ended is what the log says of a session.
func (p *program) ended(e wire.Ended) {
	if e.Unbound {
		if e.Incarnation == p.incarnation {
			p.keeper.over()
			p.keeper = nil // to be attached again
		}
		return
	}
	for _, s := range []*simSession{p.session, p.keeper} {
		if s != nil && s.id == e.Session {
			s.lost = true
		}
	}
}

// restored compares the session with a state that came by snapshot.
func (p *program) restored(m core.Machine) {
	for _, s := range []*simSession{p.session, p.keeper} {
		if s == nil || !s.open {
			continue
		}
		if _, alive := liveSession(m.(*observed).Machine, s.id); !alive {
			s.lost = true
		}
	}
}

// done says that the program has come to rest: in a calm world it has finished
// some more cycles of lock and unlock, and nothing is under way but a renewal.
func (p *program) done() bool {
	if p.quitting || p.session == nil || !p.session.open || p.cycles < 2 || p.renewing && p.waiting > 1 || !p.renewing && p.waiting > 0 {
		return false
	}
	for _, h := range p.handles() {
		if h.state != idle || h.recover {
			return false
		}
	}
	return p.keeper != nil && p.keeper.open
}

// handles are those of both sessions.
func (p *program) handles() []*handle {
	var all []*handle
	for _, s := range []*simSession{p.session, p.keeper} {
		if s != nil {
			all = append(all, s.handles...)
		}
	}
	return all
}

func (s *simSession) addHandle(space wire.Space, names []string) {
	s.handles = append(s.handles, &handle{session: s, n: uint64(len(s.handles) + 1), space: space, names: names})
}

// unrest tells what a member has not finished.
func (p *program) unrest() string {
	s := fmt.Sprintf("%d: %d cycles, %d under way, renewing %t, writing %t", p.n, p.cycles, p.waiting, p.renewing, p.writing)
	for _, h := range p.handles() {
		if h.state != idle || h.recover {
			s += fmt.Sprintf("; handle %d of %s: state %d, recovers %t", h.n, h.lock, h.state, h.recover)
		}
	}
	return s
}
