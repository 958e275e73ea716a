package machine

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// Logs of few names in which many requests for shares wait at once, behind exclusive ones and beside sets.

// portionLog makes the commands of such logs.
type portionLog struct {
	*generator
	names    int
	most     int  // requests that wait before locks are released
	emptying bool // until few wait
}

// newPortionLog returns a generator of the logs of such requests.
func newPortionLog(seed uint64) *portionLog {
	c := &portionLog{generator: newGenerator(seed), names: int(3 + seed%3)}
	c.mix = c.command
	return c
}

// entry makes an entry: requests until many wait, and then releases until few do.
func (c *portionLog) entry(r *reference.Model) []byte {
	waiting := 0
	for _, l := range r.Locks {
		waiting += len(l.Queue)
	}
	switch {
	case c.emptying && waiting < 4:
		c.emptying = false
	case !c.emptying && waiting > c.most:
		c.emptying, c.most = true, 10+c.rand.IntN(40)
	}
	if c.emptying && c.chance(40) && len(r.Incarnations) > 0 {
		return c.sweep(r)
	}
	return c.generator.entry(r)
}

func (c *portionLog) command(r *reference.Model, inc wire.ID) *wire.Command {
	n := c.rand.IntN(940)
	for _, choice := range []struct {
		weight int
		make   func() *wire.Command
	}{
		{330, func() *wire.Command { return c.share(r) }},
		{45, func() *wire.Command { return c.exclusive(r) }},
		{70, func() *wire.Command { return c.set(r) }},
		{40, func() *wire.Command { return c.vacate(r) }},
		{50, func() *wire.Command { return c.clear(r) }},
		{50, func() *wire.Command { return c.drain(r) }},
		{25, func() *wire.Command { return c.pass(r) }},
		{40, func() *wire.Command { return c.unlockShared(r) }},
		{20, func() *wire.Command { return c.unlockSet(r) }},
		{25, func() *wire.Command { return c.downgrade(r) }},
		{12, func() *wire.Command { return c.lockAcross(r) }},
		{40, func() *wire.Command { return c.withdraw(r, inc) }},
		{15, func() *wire.Command { return c.extend(r) }},
		{30, func() *wire.Command { return c.session(r, inc) }},
		{20, func() *wire.Command { return c.attach(r) }},
		{100, func() *wire.Command { return &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}} }},
		{10, func() *wire.Command { return c.raise(r) }},
	} {
		if n -= choice.weight; n < 0 {
			return choice.make()
		}
	}
	return c.generator.command(r, inc)
}

// name prefers the first names, so that sets can have the others.
func (c *portionLog) name() string {
	return string(rune('a' + min(c.rand.IntN(c.names), c.rand.IntN(c.names), c.rand.IntN(c.names))))
}

// share asks for a share, and waits for it.
func (c *portionLog) share(r *reference.Model) *wire.Command {
	lock := &wire.Lock{
		Name: c.name(), Session: c.generator.session(r), Handle: c.rand.Uint64N(4), Shared: true, Wait: c.chance(95),
		Lingering: c.chance(10), RefuseDeadlock: c.chance(20),
	}
	for _, l := range r.Locks {
		if !l.Election && l.Owner != nil && c.chance(30) {
			lock.Name = l.Name
		}
	}
	if l, sh := c.generator.share(r, true); l != nil && c.chance(30) { // claim
		lock.Name, lock.Session = l.Name, sh.Session[:]
	}
	if c.chance(10) {
		lock.MaxHold, lock.Lingering = c.maxHold(), false
	}
	return &wire.Command{Op: &wire.Command_Lock{Lock: lock}}
}

// exclusive asks for a lock that others wait for, or hold, and waits for it.
func (c *portionLog) exclusive(r *reference.Model) *wire.Command {
	command := c.share(r)
	lock := command.GetLock()
	if lock.Shared = false; c.chance(70) {
		lock.Name = c.name()
	}
	return command
}

// set asks for two or more of the names, of which it wants one exclusively in most cases.
func (c *portionLog) set(r *reference.Model) *wire.Command {
	set := &wire.LockSet{Session: c.generator.session(r), Handle: c.rand.Uint64N(2), Wait: c.chance(95), RefuseDeadlock: c.chance(20)}
	for i, name := range c.rand.Perm(c.names)[:2+c.rand.IntN(2)] {
		if name := string(rune('a' + name)); i == 0 && c.chance(70) || c.chance(40) {
			set.Names = append(set.Names, name)
		} else {
			set.Shared = append(set.Shared, name)
		}
	}
	if c.chance(10) {
		set.MaxHold = c.maxHold()
	}
	if left := c.generator.set(r, true); left != nil && c.chance(30) {
		return c.lockSet(r) // claim
	}
	return &wire.Command{Op: &wire.Command_LockSet{LockSet: set}}
}

// vacate releases a hold of the lock that most wait for.
func (c *portionLog) vacate(r *reference.Model) *wire.Command {
	var most *reference.Lock
	for _, l := range r.Locks {
		if !l.Election && len(l.Queue) > 0 && (most == nil || len(l.Queue) > len(most.Queue)) {
			most = l
		}
	}
	if most != nil {
		if command := c.unlockOf(r, most); command != nil {
			return command
		}
	}
	return c.clear(r)
}

// drain releases what keeps a set from a lock that is held shared while others wait for it, or from another of its locks.
func (c *portionLog) drain(r *reference.Model) *wire.Command {
	shared := func(p reference.Part) bool {
		l := findLock(r, p.Name)
		return l != nil && len(l.Live()) > 0 && len(l.Queue) > 0
	}
	for _, i := range c.rand.Perm(len(r.Waiting)) {
		if parts := r.Waiting[i].Parts; slices.ContainsFunc(parts, shared) {
			if l := findLock(r, parts[c.rand.IntN(len(parts))].Name); l != nil {
				if command := c.unlockOf(r, l); command != nil {
					return command
				}
			}
		}
	}
	return c.vacate(r)
}

// sweep makes an entry that releases all holds of a lock for which many wait, and of one or two others. Sometimes it also
// releases shares that the entry grants, and so makes room before the rest of them is granted.
func (c *portionLog) sweep(r *reference.Model) []byte {
	s := c.submission(r)
	if len(s.Calls) > 0 && !c.chance(20) {
		s.Calls = s.Calls[:1]
	}
	id := wire.ID(s.Incarnation)
	granted := r.Granted
	locks := slices.Clone(r.Locks)
	slices.SortStableFunc(locks, func(a, b *reference.Lock) int { return cmp.Compare(len(b.Queue), len(a.Queue)) })
	for _, l := range locks[:min(len(locks), 1+c.rand.IntN(3))] {
		for _, command := range c.releases(r, l, &granted) {
			s.Calls = append(s.Calls, c.newCall(id, command))
		}
	}
	return must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Time: c.step(), Submissions: []*wire.Submission{s}}))
}

// releases returns what releases all holds of a lock, and perhaps the first shares that are granted then. granted is the
// last number of a grant, as far as that can be known.
func (c *portionLog) releases(r *reference.Model, l *reference.Lock, granted *uint64) (all []*wire.Command) {
	unlock := func(session wire.ID, handle, fence, share uint64) {
		all = append(all, &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{
			Name: l.Name, Session: session[:], Handle: handle, Fence: fence, Share: share, Election: l.Election,
		}}})
	}
	for _, sh := range l.Live() {
		unlock(sh.Session, sh.Handle, 0, sh.Number)
	}
	if l.Owner != nil {
		unlock(l.Owner.Session, l.Owner.Handle, l.Fence, 0)
	}
	for _, s := range r.Sets {
		if slices.ContainsFunc(s.Parts, func(p reference.Part) bool { return p.Name == l.Name }) {
			all = append(all, &wire.Command{Op: &wire.Command_UnlockSet{UnlockSet: &wire.UnlockSet{Session: s.Session[:], Fence: s.Fence}}})
		}
	}
	for _, p := range l.Queue[:min(len(l.Queue), c.rand.IntN(4))] {
		*granted++
		unlock(p.Session, p.Handle, 0, *granted)
	}
	return all
}

// session opens a session, or ends one of several.
func (c *portionLog) session(r *reference.Model, inc wire.ID) *wire.Command {
	switch {
	case len(r.Sessions) > 3 && c.chance(30), len(r.Sessions) > 10:
		return c.closeSession(r)
	case c.chance(20):
		return c.createSession(r, inc)
	}
	open := c.openSession(r, inc)
	if op := open.GetOpenSession(); c.chance(60) {
		op.Ttl *= 5 // queues grow as long as it lives
	}
	return open
}
