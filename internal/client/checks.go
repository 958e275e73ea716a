package client

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/leaseclock"
	"github.com/conclave-go/conclave/internal/wire"
)

// checks is what this process knows of the checks of its member that have, or may
// have, a TTL: a session ends when such a check was not refreshed in time, however
// often the session itself is renewed. Only this process changes them.
type checks struct {
	commands *commands
	clock    *leaseclock.Clock
	live     func() []*Lease

	mu     sync.Mutex
	byName map[string]*check // guarded by mu
}

// check is what this process knows of one check. Leases that depend on it have a
// pointer to it.
type check struct {
	name      string
	ttl       time.Duration         // guarded by mu of checks, like all below; 0: none
	refreshed instant               // no later than the group's time of the last refresh
	index     uint64                // of the log, from which ttl is; 0: none yet
	sent      map[*refresh]struct{} // registrations without an outcome so far
}

// refresh is a command under way that registers or refreshes a check.
type refresh struct {
	checks   *checks
	name     string
	register bool
	ttl      time.Duration // with register
	at       instant       // when it was sent
}

const (
	never   instant = math.MaxInt64     // after every deadline
	longAgo instant = math.MinInt64 / 2 // before this process
)

// get returns the check of that name, which is new if it is not known. mu is held.
func (k *checks) get(name string) *check {
	c := k.byName[name]
	if c == nil {
		c = &check{name: name, refreshed: longAgo, sent: make(map[*refresh]struct{})}
		k.byName[name] = c
	}
	return c
}

// deadline returns until when this process may rely on what it holds under a session
// that depends on the checks, and the check that ends it: the session ends no earlier
// than a TTL after the refresh, and nothing is granted before its lock-delay has passed.
// A registration without an outcome may or may not have changed the TTL.
func (k *checks) deadline(of []*check, lockDelay time.Duration) (at instant, by *check) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at = never
	consider := func(c *check, refreshed instant, ttl time.Duration) {
		if end := refreshed + instant(trusted(ttl+lockDelay)); ttl > 0 && end < at {
			at, by = end, c
		}
	}
	for _, c := range of {
		consider(c, c.refreshed, c.ttl)
		for r := range c.sent {
			consider(c, max(c.refreshed, r.at), r.ttl)
		}
	}
	return at, by
}

// learn takes over what a reply, to a command sent at that time, says of checks, and
// returns them. The built-in check is left out: it has no TTL.
func (k *checks) learn(r *wire.Reply, sent instant) []*check {
	k.mu.Lock()
	defer k.mu.Unlock()
	var learned []*check
	for _, terms := range r.GetChecks() {
		if terms.GetName() != gossipCheck {
			c := k.get(terms.GetName())
			c.learn(terms, r.GetIndex(), sent)
			learned = append(learned, c)
		}
	}
	return learned
}

// The built-in checks.
const (
	gossipCheck  = "gossip"
	ProcessCheck = "process"
)

// learn takes over what was in force at an index. After a snapshot, replies can come
// in another order than that of the log.
func (c *check) learn(terms *wire.CheckTerms, index uint64, sent instant) {
	ttl, left := time.Duration(terms.GetTtl()), time.Duration(terms.GetRemaining())
	switch {
	case index > c.index:
		c.ttl, c.index = ttl, index
	case index == c.index && ttl > 0 && (c.ttl == 0 || ttl < c.ttl):
		c.ttl = ttl // until the next refresh shows which was the last
	}
	if left > 0 {
		c.refreshed = max(c.refreshed, sent+instant(left-ttl))
	}
}

// dependsOnGossip reports whether the failure detector can end a session.
func dependsOnGossip(r *wire.Reply) bool {
	for _, terms := range r.GetChecks() {
		if terms.GetName() == gossipCheck {
			return true
		}
	}
	return false
}

// SetCheck registers or refreshes a check of this member, with the outcomes of Exec.
func (k *checks) SetCheck(ctx context.Context, op *wire.SetCheck) error {
	if err := k.commands.life.Usable(); err != nil {
		return err
	}
	var last *refresh
	cmd := &wire.Command{Op: &wire.Command_SetCheck{SetCheck: op}}
	reply, err := k.commands.execEach(ctx, cmd, func() func(answer) {
		last = k.refreshing(op)
		return last.answered
	})
	if last != nil && (IsKind(err, Unavailable) || IsKind(err, Interrupted)) {
		last.forget() // it was not sent
	}
	if err == nil {
		err = refusal(reply)
	}
	return err
}

// refreshing notes that a check is about to be refreshed. A smaller TTL may be in
// force from then on.
func (k *checks) refreshing(op *wire.SetCheck) *refresh {
	r := &refresh{checks: k, name: op.Name, register: op.Register, ttl: time.Duration(op.Ttl), at: k.clock.Now()}
	if r.register {
		k.mu.Lock()
		known := k.get(r.name)
		known.sent[r] = struct{}{}
		k.mu.Unlock()
		for _, l := range k.live() {
			l.hasten(known)
		}
	}
	return r
}

// answered notes the outcome. A refresh without one had no effect, or the session's
// end is known by then.
func (r *refresh) answered(a answer) {
	if a.err == nil {
		r.checks.learn(a.reply, r.at)
	}
	r.forget()
}

// forget ends a refresh. A check that the group does not have is forgotten with it.
func (r *refresh) forget() {
	k := r.checks
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.byName[r.name]; c != nil {
		delete(c.sent, r)
		k.forget(c, 0)
	}
}

// forget removes a check about which nothing is known that is newer than an index. mu
// is held.
func (k *checks) forget(c *check, index uint64) {
	if c.index <= index && len(c.sent) == 0 {
		delete(k.byName, c.name)
	}
}

// DropCheck deregisters a check of this member, with the outcomes of Exec. The
// sessions that depend on it end with it.
func (k *checks) DropCheck(ctx context.Context, name string) error {
	reply, err := k.commands.Exec(ctx, &wire.Command{Op: &wire.Command_DropCheck{DropCheck: &wire.DropCheck{Name: name}}})
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.byName[name]; err == nil && known != nil {
		k.forget(known, reply.GetIndex())
	}
	return err
}
