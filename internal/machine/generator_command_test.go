package machine

import (
	"math"
	"slices"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// The commands of the random logs: mostly sensible, sometimes nonsense.

func (g *generator) command(r *reference.Model, inc wire.ID) *wire.Command {
	switch {
	case g.jobs && g.chance(35):
		return g.jobCommand(r, inc)
	case g.groups && g.chance(8):
		return g.groupCommand(r)
	case g.shards && g.chance(30):
		return g.shardCommand(r, inc)
	}
	n := g.rand.IntN(1819)
	for _, choice := range []struct {
		weight int
		make   func() *wire.Command
	}{
		{50, func() *wire.Command { return &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}} }},
		{5, func() *wire.Command { return &wire.Command{Op: &wire.Command_Deregister{}} }},
		{3, func() *wire.Command {
			return &wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{Voters: g.group[g.rand.IntN(len(g.group)+1):]}}}
		}},
		{2, func() *wire.Command {
			return &wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{Member: g.rand.Uint64N(g.last + 3)}}}
		}},
		{8, func() *wire.Command { return g.admit(r) }},
		{8, func() *wire.Command { return g.groupConfig() }},
		{90, func() *wire.Command { return g.openSession(r, inc) }},
		{25, func() *wire.Command { return g.createSession(r, inc) }},
		{25, func() *wire.Command { return g.renewSession(r) }},
		{35, func() *wire.Command { return g.closeSession(r) }},
		{40, func() *wire.Command { return g.attach(r) }},
		{40, func() *wire.Command { return g.setCheck() }},
		{6, func() *wire.Command { return g.dropCheck() }},
		{20, func() *wire.Command { return g.gossip(r) }},
		{12, func() *wire.Command { return g.process(r) }},
		{4, func() *wire.Command { return g.raise(r) }},
		{140, func() *wire.Command { return g.lock(r) }},
		{110, func() *wire.Command { return g.unlock(r) }},
		{70, func() *wire.Command { return g.lockShared(r) }},
		{50, func() *wire.Command { return g.unlockShared(r) }},
		{20, func() *wire.Command { return g.downgrade(r) }},
		{220, func() *wire.Command { return g.lockAcross(r) }},
		{35, func() *wire.Command { return g.extend(r) }},
		{160, func() *wire.Command { return g.lockSet(r) }},
		{60, func() *wire.Command { return g.unlockSet(r) }},
		{70, func() *wire.Command { return g.clear(r) }},
		{110, func() *wire.Command { return g.pass(r) }},
		{20, func() *wire.Command { return g.proclaim(r) }},
		{20, func() *wire.Command { return g.refill(r) }},
		{110, func() *wire.Command { return g.acquire(r) }},
		{45, func() *wire.Command { return g.release(r) }},
		{12, func() *wire.Command { return g.resize() }},
		{70, func() *wire.Command { return g.withdraw(r, inc) }},
		{12, func() *wire.Command { return g.renewClients(r) }},
		{3, func() *wire.Command { return g.misplaced(r) }},
	} {
		if n -= choice.weight; n < 0 {
			return choice.make()
		}
	}
	return g.write(r)
}

func (g *generator) raise(r *reference.Model) *wire.Command {
	c := &wire.RaiseLevel{Level: r.Level + uint32(g.rand.IntN(3)), Force: g.chance(30)}
	if g.chance(50) {
		c.Members = []uint64{1 + g.rand.Uint64N(g.last)}
	}
	return &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: c}}
}

func (g *generator) openSession(r *reference.Model, inc wire.ID) *wire.Command {
	c := &wire.OpenSession{
		Id: g.newID(), Name: []string{"", "s", "t"}[g.rand.IntN(3)], Ttl: (1 + g.rand.Int64N(3)) * second,
		LockDelay: max(0, g.rand.Int64N(7)-2) * second, Behavior: wire.Behavior(g.rand.Int32N(2)),
	}
	if g.chance(25) {
		c.Ttl = 0
	}
	if of := r.Incarnation(inc); of != nil && g.chance(40) {
		for _, check := range r.Checks {
			if check.Member == of.Member && g.chance(40) {
				c.Checks = append(c.Checks, check.Name)
			}
		}
		if g.chance(50) {
			c.Checks = append(c.Checks, "gossip")
		}
		if g.chance(40) && !slices.Contains(c.Checks, "process") { // registered below its level
			c.Checks = append(c.Checks, "process")
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

func (g *generator) createSession(r *reference.Model, inc wire.ID) *wire.Command {
	c := &wire.CreateSession{Session: g.openSession(r, inc).GetOpenSession()}
	if g.chance(1) {
		c.Session = nil
	}
	return &wire.Command{Op: &wire.Command_CreateSession{CreateSession: c}}
}

// renewSession renews a session that no process does, if there is one.
func (g *generator) renewSession(r *reference.Model) *wire.Command {
	c := &wire.RenewSession{Id: g.session(r)}
	for _, s := range r.Sessions {
		if s.Standalone && g.chance(60) {
			c.Id = s.ID[:]
		}
	}
	return &wire.Command{Op: &wire.Command_RenewSession{RenewSession: c}}
}

func (g *generator) closeSession(r *reference.Model) *wire.Command {
	c := &wire.CloseSession{Id: g.session(r), Graceful: g.chance(50)}
	return &wire.Command{Op: &wire.Command_CloseSession{CloseSession: c}}
}

// attach asks for a session that may be attached, if there is one.
func (g *generator) attach(r *reference.Model) *wire.Command {
	c := &wire.AttachSession{Id: g.session(r)}
	for _, s := range r.Sessions {
		if s.Incarnation == (wire.ID{}) && g.chance(60) {
			c.Id = s.ID[:]
		}
	}
	return &wire.Command{Op: &wire.Command_AttachSession{AttachSession: c}}
}

func (g *generator) lock(r *reference.Model) *wire.Command {
	c := &wire.Lock{
		Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Reentrant: g.chance(60),
		Limit: g.rand.Uint32N(4), Wait: g.chance(60), Election: g.chance(40),
	}
	if l := g.held(r, g.chance(30)); l != nil && g.chance(40) { // re-enter, or claim
		c.Name, c.Election, c.Session, c.Handle = l.Name, l.Election, l.Owner.Session[:], l.Owner.Handle
		if !l.Unclaimed && g.chance(70) {
			c.Fence = l.Fence
		}
	}
	c.Lingering, c.RefuseDeadlock = g.chance(40), g.chance(50)
	if g.chance(30) {
		c.MaxHold, c.Lingering = g.maxHold(), g.chance(2)
		c.Election = c.Election && g.chance(5)
	}
	if g.chance(20) {
		c.Label = g.handleLabel()
	}
	if c.Election != g.chance(1) {
		c.Value = g.value(MaxCandidate)
	}
	if g.chance(3) {
		c.Fence = g.rand.Uint64N(r.Granted + 1)
	}
	return &wire.Command{Op: &wire.Command_Lock{Lock: c}}
}

func (g *generator) unlock(r *reference.Model) *wire.Command {
	c := &wire.Unlock{Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Fence: r.Granted, Election: g.chance(40)}
	if l := g.held(r, g.chance(3)); l != nil && g.chance(90) {
		c.Name, c.Election, c.Session, c.Handle, c.Fence = l.Name, l.Election, l.Owner.Session[:], l.Owner.Handle, l.Fence
		if g.chance(5) {
			c.Fence--
		}
	}
	c.Trace = g.trace()
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: c}}
}

func (g *generator) refill(r *reference.Model) *wire.Command {
	c := &wire.Refill{Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Fence: r.Granted, Fences: g.rand.Uint32N(64)}
	if g.chance(2) {
		c.Fences = g.rand.Uint32()
	}
	if l := g.held(r, g.chance(3)); l != nil && g.chance(90) {
		c.Name, c.Session, c.Handle, c.Fence = l.Name, l.Owner.Session[:], l.Owner.Handle, l.Fence
		if g.chance(5) {
			c.Fence--
		}
	}
	return &wire.Command{Op: &wire.Command_Refill{Refill: c}}
}

func (g *generator) proclaim(r *reference.Model) *wire.Command {
	c := &wire.Proclaim{Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Fence: r.Granted, Value: g.value(MaxCandidate)}
	if l := g.held(r, g.chance(3)); l != nil && l.Election {
		c.Name, c.Session, c.Handle, c.Fence = l.Name, l.Owner.Session[:], l.Owner.Handle, l.Fence
		if g.chance(5) {
			c.Fence--
		}
	}
	return &wire.Command{Op: &wire.Command_Proclaim{Proclaim: c}}
}

func (g *generator) acquire(r *reference.Model) *wire.Command {
	c := &wire.Acquire{
		Name: g.crowded(), Session: g.session(r), Limit: 2 + g.rand.Uint32N(4),
		Permits: 1 + g.rand.Uint32N(3), Wait: g.chance(50),
	}
	if s := r.Semaphore(c.Name); s != nil && !g.chance(5) {
		c.Limit = s.Limit
		if p := g.some(s, func(p reference.Permit) bool { return p.Unclaimed }); p != nil && g.chance(50) {
			c.Session, c.Permits = p.Session[:], p.Permits
		}
	}
	if g.chance(30) {
		c.MaxHold = g.maxHold()
	}
	switch g.rand.IntN(60) {
	case 0:
		c.Permits = g.rand.Uint32N(8)
	case 1:
		c.Limit = g.rand.Uint32() &^ 1
	case 2:
		c.Limit, c.Permits = 0, 0
	case 3:
		c.Permits = MaxSlots + g.rand.Uint32N(2)
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
func (g *generator) some(s *reference.Semaphore, meant func(reference.Permit) bool) *reference.Permit {
	var all []reference.Permit
	for _, p := range s.Permits {
		if meant(p) {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &all[g.rand.IntN(len(all))]
}

func (g *generator) release(r *reference.Model) *wire.Command {
	c := &wire.Release{Name: g.name(), Session: g.session(r), Fence: r.Granted}
	if len(r.Semaphores) > 0 && g.chance(90) {
		s := r.Semaphores[g.rand.IntN(len(r.Semaphores))]
		c.Name = s.Name
		if p := g.some(s, func(reference.Permit) bool { return true }); p != nil {
			c.Session, c.Fence = p.Session[:], p.Fence
		}
		if g.chance(5) {
			c.Fence--
		}
	}
	c.Trace = g.trace()
	return &wire.Command{Op: &wire.Command_Release{Release: c}}
}

func (g *generator) resize() *wire.Command {
	c := &wire.Resize{Name: g.crowded(), Limit: g.rand.Uint32N(7)}
	if g.chance(5) {
		c.Limit = []uint32{MaxPermits, MaxPermits + 1, 2 * MaxSlots, 2 * MaxSlots}[g.rand.IntN(4)]
	}
	return &wire.Command{Op: &wire.Command_Resize{Resize: c}}
}

// withdraw undoes what a ticket of the incarnation has obtained, if there is any.
func (g *generator) withdraw(r *reference.Model, inc wire.ID) *wire.Command {
	t := wire.Ticket{Incarnation: inc, Seq: g.rand.Uint64N(g.seqs[inc] + 2)}
	if own := r.Tickets(inc); len(own) > 0 && g.chance(90) {
		t = own[g.rand.IntN(len(own))]
	}
	if g.chance(1) {
		t.Incarnation[0]++
	}
	c := &wire.Withdraw{Incarnation: t.Incarnation[:], Seq: t.Seq}
	if g.chance(1) {
		c.Incarnation = c.Incarnation[:15]
	}
	return &wire.Command{Op: &wire.Command_Withdraw{Withdraw: c}}
}

// held returns a lock that is held, preferably as asked: left by a process
// that is gone, or not.
func (g *generator) held(r *reference.Model, left bool) *reference.Lock {
	var all []*reference.Lock
	for _, l := range r.Locks {
		if l.Job == "" && l.Owner != nil && l.Unclaimed == left {
			all = append(all, l)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[g.rand.IntN(len(all))]
}

func (g *generator) write(r *reference.Model) *wire.Command {
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

func (g *generator) keyOp(r *reference.Model) *wire.KeyOp {
	op := &wire.KeyOp{
		Kind: wire.KeyOp_Kind(1 + g.rand.Int32N(10)), Key: g.keyName(), Value: g.value(MaxValue),
		Flags: g.rand.Uint64N(2), Session: g.session(r), Fence: g.rand.Uint64N(r.Granted/100 + 3),
	}
	if g.chance(35) {
		op.Kind = wire.KeyOp_ACQUIRE
	}
	if e, there := r.Key(op.Key); there && g.chance(70) {
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
