package machine

import (
	"math"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// The commands of the random logs: mostly sensible, sometimes nonsense.

func (g *generator) command(r *reference, inc wire.ID) *wire.Command {
	n := g.rand.IntN(1000)
	for _, choice := range []struct {
		weight int
		make   func() *wire.Command
	}{
		{50, func() *wire.Command { return &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}} }},
		{5, func() *wire.Command {
			return &wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}}
		}},
		{3, func() *wire.Command { return &wire.Command{Op: &wire.Command_Leave{Leave: &wire.Leave{}}} }},
		{90, func() *wire.Command { return g.openSession(r, inc) }},
		{35, func() *wire.Command { return g.closeSession(r) }},
		{20, func() *wire.Command { return g.attach(r) }},
		{40, func() *wire.Command { return g.setCheck() }},
		{6, func() *wire.Command { return g.dropCheck() }},
		{20, func() *wire.Command { return g.gossip(r) }},
		{140, func() *wire.Command { return g.lock(r) }},
		{110, func() *wire.Command { return g.unlock(r) }},
		{20, func() *wire.Command { return g.proclaim(r) }},
		{110, func() *wire.Command { return g.acquire(r) }},
		{45, func() *wire.Command { return g.release(r) }},
		{12, func() *wire.Command { return g.resize() }},
		{70, func() *wire.Command { return g.withdraw(r, inc) }},
	} {
		if n -= choice.weight; n < 0 {
			return choice.make()
		}
	}
	return g.write(r)
}

func (g *generator) openSession(r *reference, inc wire.ID) *wire.Command {
	c := &wire.OpenSession{
		Id: g.newID(), Name: "s", Ttl: (1 + g.rand.Int64N(3)) * second,
		LockDelay: max(0, g.rand.Int64N(7)-2) * second, Behavior: wire.Behavior(g.rand.Int32N(2)),
	}
	if g.chance(25) {
		c.Ttl = 0
	}
	if of := r.inc(inc); of != nil && g.chance(40) {
		for _, check := range r.checks {
			if check.member == of.member && g.chance(40) {
				c.Checks = append(c.Checks, check.name)
			}
		}
		if g.chance(50) {
			c.Checks = append(c.Checks, "gossip")
		}
	}
	switch g.rand.IntN(60) {
	case 0:
		c.Id = g.session(r)
	case 1:
		c.Ttl = g.rand.Int64() - math.MaxInt64/2
	case 2:
		c.LockDelay = g.rand.Int64() - math.MaxInt64/2
	case 3:
		c.Id = c.Id[:g.rand.IntN(16)]
	case 4:
		c.Name = g.name()
	case 5:
		c.Behavior = 2
	case 6:
		c.Checks = append(c.Checks, g.name(), g.checkName())
	case 7:
		c.Checks = make([]string, MaxSessionChecks+g.rand.IntN(2))
		for i := range c.Checks {
			c.Checks[i] = string(rune('a' + i))
		}
	}
	return &wire.Command{Op: &wire.Command_OpenSession{OpenSession: c}}
}

func (g *generator) closeSession(r *reference) *wire.Command {
	c := &wire.CloseSession{Id: g.session(r), Graceful: g.chance(50)}
	return &wire.Command{Op: &wire.Command_CloseSession{CloseSession: c}}
}

// attach asks for a session that may be attached, if there is one.
func (g *generator) attach(r *reference) *wire.Command {
	c := &wire.AttachSession{Id: g.session(r)}
	for _, s := range r.sessions {
		if s.inc == (wire.ID{}) && g.chance(60) {
			c.Id = s.id[:]
		}
	}
	return &wire.Command{Op: &wire.Command_AttachSession{AttachSession: c}}
}

func (g *generator) checkName() string {
	if g.chance(5) {
		return g.name()
	}
	return []string{"disk", "http", "gossip"}[min(2, g.rand.IntN(20)/9)]
}

func (g *generator) setCheck() *wire.Command {
	c := &wire.SetCheck{Name: g.checkName(), Register: g.chance(60), State: wire.CheckState(g.rand.Int32N(2))}
	switch {
	case g.chance(20):
		c.State = wire.CheckState_CRITICAL
	case g.chance(1):
		c.State = 3
	}
	switch {
	case g.chance(1):
		c.Ttl = g.rand.Int64() - math.MaxInt64/2
	case g.chance(60):
		c.Ttl = (1 + g.rand.Int64N(4)) * second
	}
	return &wire.Command{Op: &wire.Command_SetCheck{SetCheck: c}}
}

func (g *generator) dropCheck() *wire.Command {
	return &wire.Command{Op: &wire.Command_DropCheck{DropCheck: &wire.DropCheck{Name: g.checkName()}}}
}

func (g *generator) gossip(r *reference) *wire.Command {
	c := &wire.ReportGossip{Member: g.member(r), Alive: g.chance(65), Term: refTerm}
	if g.chance(5) {
		c.Term++
	}
	c.Boot = g.boots[c.Member]
	if g.chance(20) {
		c.Boot += g.rand.Uint64N(3) - 1
	}
	return &wire.Command{Op: &wire.Command_ReportGossip{ReportGossip: c}}
}

func (g *generator) lock(r *reference) *wire.Command {
	c := &wire.Lock{
		Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Reentrant: g.chance(60),
		Limit: g.rand.Uint32N(4), Wait: g.chance(60), Election: g.chance(40),
	}
	if l := g.held(r, g.chance(30)); l != nil && g.chance(40) { // enter again, or take over
		c.Name, c.Election, c.Session, c.Handle = l.name, l.election, l.owner.session[:], l.owner.handle
		if !l.left && g.chance(70) {
			c.Fence = l.fence
		}
	}
	if c.Election != g.chance(1) {
		c.Value = g.value(MaxCandidate)
	}
	if g.chance(3) {
		c.Fence = g.rand.Uint64N(r.granted + 1)
	}
	return &wire.Command{Op: &wire.Command_Lock{Lock: c}}
}

func (g *generator) unlock(r *reference) *wire.Command {
	c := &wire.Unlock{Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Fence: r.granted, Election: g.chance(40)}
	if l := g.held(r, g.chance(3)); l != nil && g.chance(90) {
		c.Name, c.Election, c.Session, c.Handle, c.Fence = l.name, l.election, l.owner.session[:], l.owner.handle, l.fence
		if g.chance(5) {
			c.Fence--
		}
	}
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: c}}
}

func (g *generator) proclaim(r *reference) *wire.Command {
	c := &wire.Proclaim{Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Fence: r.granted, Value: g.value(MaxCandidate)}
	if l := g.held(r, g.chance(3)); l != nil && l.election {
		c.Name, c.Session, c.Handle, c.Fence = l.name, l.owner.session[:], l.owner.handle, l.fence
		if g.chance(5) {
			c.Fence--
		}
	}
	return &wire.Command{Op: &wire.Command_Proclaim{Proclaim: c}}
}

func (g *generator) acquire(r *reference) *wire.Command {
	c := &wire.Acquire{
		Name: g.crowded(), Session: g.session(r), Limit: 2 + g.rand.Uint32N(4),
		Permits: 1 + g.rand.Uint32N(3), Wait: g.chance(50),
	}
	if s := r.sem(c.Name); s != nil && !g.chance(5) {
		c.Limit = s.limit
		if p := s.some(g, func(p refPermit) bool { return p.left }); p != nil && g.chance(50) {
			c.Session, c.Permits = p.session[:], p.permits
		}
	}
	switch g.rand.IntN(60) {
	case 0:
		c.Permits = g.rand.Uint32N(8)
	case 1:
		c.Limit = g.rand.Uint32() &^ 1
	case 2:
		c.Limit, c.Permits = 0, 0
	}
	return &wire.Command{Op: &wire.Command_Acquire{Acquire: c}}
}

// crowded names one of few, so that there is a queue and not all of it fits.
func (g *generator) crowded() string {
	if g.chance(80) {
		return string(rune('a' + g.rand.IntN(2)))
	}
	return g.name()
}

// some returns one of the semaphore's acquisitions, or nil.
func (s *refSemaphore) some(g *generator, meant func(refPermit) bool) *refPermit {
	var all []refPermit
	for _, p := range s.permits {
		if meant(p) {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &all[g.rand.IntN(len(all))]
}

func (g *generator) release(r *reference) *wire.Command {
	c := &wire.Release{Name: g.name(), Session: g.session(r), Fence: r.granted}
	if len(r.sems) > 0 && g.chance(90) {
		s := r.sems[g.rand.IntN(len(r.sems))]
		c.Name = s.name
		if p := s.some(g, func(refPermit) bool { return true }); p != nil {
			c.Session, c.Fence = p.session[:], p.fence
		}
		if g.chance(5) {
			c.Fence--
		}
	}
	return &wire.Command{Op: &wire.Command_Release{Release: c}}
}

func (g *generator) resize() *wire.Command {
	c := &wire.Resize{Name: g.crowded(), Limit: 1 + g.rand.Uint32N(6)}
	if g.chance(5) {
		c.Limit = []uint32{0, MaxPermits, MaxPermits + 1}[g.rand.IntN(3)]
	}
	return &wire.Command{Op: &wire.Command_Resize{Resize: c}}
}

// withdraw takes back what the incarnation asked for, if there is any.
func (g *generator) withdraw(r *reference, inc wire.ID) *wire.Command {
	c := &wire.Withdraw{
		Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2),
		Seq: g.rand.Uint64N(g.seqs[inc] + 2), Space: wire.Space(g.rand.Int32N(3)),
	}
	if own := g.asked(r, inc); len(own) > 0 && g.chance(90) {
		c = own[g.rand.IntN(len(own))]
	}
	if g.chance(1) {
		c.Space++
	}
	return &wire.Command{Op: &wire.Command_Withdraw{Withdraw: c}}
}

func (g *generator) asked(r *reference, inc wire.ID) (own []*wire.Withdraw) {
	add := func(name string, space wire.Space, places ...refPlace) {
		for _, p := range places {
			if p.ticket.Incarnation == inc {
				own = append(own, &wire.Withdraw{Name: name, Space: space, Session: p.session[:], Handle: p.handle, Seq: p.ticket.Seq})
			}
		}
	}
	for _, l := range r.locks {
		space := wire.Space_LOCK
		if l.election {
			space = wire.Space_ELECTION
		}
		if add(l.name, space, l.queue...); l.owner != nil {
			add(l.name, space, *l.owner)
		}
	}
	for _, s := range r.sems {
		add(s.name, wire.Space_SEMAPHORE, s.queue...)
		for _, p := range s.permits {
			add(s.name, wire.Space_SEMAPHORE, refPlace{session: p.session, ticket: p.ticket})
		}
	}
	return own
}

// held returns a lock that is held, preferably as asked: left by a process
// that is gone, or not.
func (g *generator) held(r *reference, left bool) *refLock {
	var all []*refLock
	for _, l := range r.locks {
		if l.owner != nil && l.left == left {
			all = append(all, l)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[g.rand.IntN(len(all))]
}

func (g *generator) write(r *reference) *wire.Command {
	c := &wire.Write{}
	for more := true; more; more = g.chance(35) {
		c.Ops = append(c.Ops, g.keyOp(r))
	}
	switch {
	case g.rand.IntN(500) == 0:
		c.Ops = nil
	case g.rand.IntN(2000) == 0:
		c.Ops = slices.Repeat(c.Ops[:1], MaxOps+g.rand.IntN(2))
	}
	return &wire.Command{Op: &wire.Command_Write{Write: c}}
}

func (g *generator) keyOp(r *reference) *wire.KeyOp {
	op := &wire.KeyOp{
		Kind: wire.KeyOp_Kind(1 + g.rand.Int32N(10)), Key: g.keyName(), Value: g.value(MaxValue),
		Flags: g.rand.Uint64N(2), Session: g.session(r), Fence: g.rand.Uint64N(r.granted/100 + 3),
	}
	if g.chance(35) {
		op.Kind = wire.KeyOp_ACQUIRE
	}
	if e, there := r.keys.get(op.Key); there && g.chance(70) {
		op.Index = e.ModifyIndex
		if e.Session != (wire.ID{}) && g.chance(60) {
			op.Session = e.Session[:]
		}
		if op.Kind == wire.KeyOp_EXPECT_HOLDER {
			op.Index = e.LockIndex
		}
	}
	switch g.rand.IntN(100) {
	case 0:
		op.Kind = wire.KeyOp_Kind(11 * g.rand.Int32N(2))
	case 1:
		op.Session = [][]byte{nil, make([]byte, 16)}[g.rand.IntN(2)]
	case 2:
		op.Fence, op.Index = math.MaxUint64, 0
	case 3:
		op.Key = ""
	}
	if op.Kind == wire.KeyOp_DELETE_PREFIX && g.chance(50) {
		op.Key = "a/"
	}
	return op
}

func (g *generator) keyName() string {
	if g.chance(40) {
		return "a/" + g.name()
	}
	return g.name()
}
