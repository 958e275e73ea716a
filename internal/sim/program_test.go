package sim

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/maxhold"
	"github.com/conclave-go/conclave/internal/wire"
)

// program is what a process does with its member: it registers, renews a session,
// and its handles acquire and release. When its registration has expired it
// registers again.
type program struct {
	*process
	gateway       gateway
	incarnation   wire.ID
	attempt       uint32
	registered    bool
	renewing      bool
	renewals      int               // started so far
	replacements  int               // of the state, by snapshots
	heard         maxhold.Reference // of the last acknowledged renewal
	mutedUntil    time.Duration     // does not renew before
	session       *simSession
	noTTL         *simSession // the session without a TTL
	inFlight      int         // calls and reads
	cycles        int         // finished since draining
	terminated    bool
	leaving       bool // its removal is requested
	closingOrphan bool // closes a session of a lost member by force
	writing       bool
	workers       []*shardWorker // of both sessions, and of those that are lost
	strays        []*shardTask   // works that go on in sessions that are lost
	checkInFlight bool
	knownKeys     map[string]*wire.KeyMeta // metadata of keys, from the last replies
}

func newProgram(proc *process) *program {
	p := &program{
		process: proc, gateway: ownMember{proc}, incarnation: proc.core.Incarnation(),
		knownKeys: make(map[string]*wire.KeyMeta), terminated: proc.tainted,
	}
	if p.terminated {
		return p
	}
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
	p.after(0, func() { p.gateway.submit(body, c, urgent) })
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
	p.gateway.submit(body, call, true)
}

// registration makes the command that registers the member's process.
func (p *program) registration() ([]byte, *simCall) {
	if p.remote != nil {
		return p.remote.registration()
	}
	p.sim.clients.processReplaced(p)
	p.attempt++
	attempt, tokens := p.attempt, p.tokens
	command := &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{
		Member: p.id(), Boot: p.boot, Attempt: attempt, Ttl: int64(p.sim.registrationTTL()),
		Tokens: tokens[:len(tokens)-1], NextToken: tokens[len(tokens)-1], FeatureLevel: wire.FeatureLevel,
	}}}
	if p.sim.faults.joins {
		command.GetRegister().Key, command.GetRegister().Voters = publicKeyOf(p.id()), 3
	}
	if p.of != nil { // the default group has checked the succession
		r := command.GetRegister()
		r.Tokens, r.NextToken, r.Voters = nil, p.of.tokens[len(p.of.tokens)-1], 0
	}
	return p.encode(command), p.newCall(func(_ wire.Ticket, r *wire.Reply, _ bool) {
		if attempt != p.attempt || r == nil || r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
			return // replaced, or expired before its outcome arrived
		}
		if r.GetCode() == wire.Code_REMOVED { // as in Open, the member stays until it is out of the configuration: its vote may be needed
			p.leaving = true
			return
		}
		if r.GetCode() == wire.Code_BUSY && p.of != nil { // the group does not list the member yet
			p.after(p.simulatedTime(50*time.Millisecond), p.register)
			return
		}
		if r.GetCode() != wire.Code_OK {
			p.sim.fail("member %d: register: %v", p.n, r)
		}
		p.registered, p.leaving = true, false
		p.tokens = tokens[len(tokens)-1:]
	})
}

// registrationExpired registers a new incarnation, as the client engine does.
func (p *program) registrationExpired(incarnation wire.ID) {
	p.after(0, func() { p.gateway.reregister(incarnation) })
}

// act is one step of the program.
func (p *program) act() {
	if p.terminated {
		return
	}
	pause := p.sim.pauseOfPrograms() * p.sim.between(time.Millisecond, 50*time.Millisecond)
	p.after(pause, p.act)
	if p.remote != nil && p.remote.renews && !p.registered && !p.sim.programsStopped {
		p.renew() // as in production, where renewals go on while a client registers again
	}
	if !p.registered || p.leaving || p.sim.programsStopped {
		return
	}
	if p.rests() {
		p.beginRest()
		return
	}
	p.renew()
	p.raiseLevel()
	p.updateCheck()
	p.closeOrphans()
	p.actLost()
	s := p.session
	switch {
	case s != nil && (s.lost || s.open && p.clock() >= s.deadline):
		p.sim.trace("member %d has lost session %s", p.n, s.id)
		p.closeExpired(s)
	case s == nil:
		p.openSession()
	case s.open:
		if s.task != nil {
			s.task.act()
		} else {
			s.actHandles()
		}
		s.actRunners()
		s.actWorkers()
		p.maybeRead()
		p.write()
	}
	p.useNoTTLSession()
}

// actHandles has some of the handles of locks, elections, semaphores and sets act.
func (s *simSession) actHandles() {
	s.handles[s.program.sim.rng.IntN(len(s.handles))].act()
	if s.keeper != nil {
		s.keeper.act()
		s.sharers.act()
	}
	s.actSet()
}

// atRest reports whether a draining program has finished some more cycles of
// acquire and release and has nothing in flight but a renewal.
func (p *program) atRest() bool {
	if p.leaving || !p.gateway.connected() || p.session == nil || !p.session.open || p.cycles < 2 || p.renewing && p.inFlight > 1 || !p.renewing && p.inFlight > 0 {
		return false
	}
	for _, h := range p.handles() {
		if h.state != idle || h.toReclaim() {
			return false
		}
	}
	return p.runnersAtRest() && p.workersAtRest() && p.noTTL != nil && p.noTTL.open && !p.session.sharers.ending()
}

// handles returns those of both sessions.
func (p *program) handles() []*handle {
	var all []*handle
	for _, s := range []*simSession{p.session, p.noTTL} {
		if s != nil {
			all = append(all, s.handles...)
			all = append(all, s.setHandle.withParts()...)
			all = append(all, s.task.handles()...)
			if s.single != nil {
				all = append(all, s.single)
			}
			if s.sharers != nil {
				all = append(all, s.sharers.handles...)
			}
		}
	}
	return all
}

// unfinished describes what is in progress.
func (p *program) unfinished() string {
	s := fmt.Sprintf("member %d: %d cycles, %d in flight, renewing %t, writing %t", p.n, p.cycles, p.inFlight, p.renewing, p.writing)
	for _, h := range p.handles() {
		if h.state != idle || h.toReclaim() {
			s += fmt.Sprintf("; handle %d of %s: state %d, reclaim %t", h.n, h.lock, h.state, h.reclaim)
		}
	}
	for _, w := range p.workers {
		if !w.atRest() {
			s += fmt.Sprintf("; worker %d of %s: state %d, %d shards", w.n, w.set, w.state, len(w.tasks))
		}
	}
	return s
}
