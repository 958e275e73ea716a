package reference

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Locks and elections.

// Lock is a lock or an election, or that of a job's runs.
type Lock struct {
	Name      string
	Election  bool
	Owner     *Place // nil: none
	Unclaimed bool   // since its session was attached
	Fence     uint64
	Queue     []Place
	Lingering bool // its owner gives it out itself, for a tenure
	holds     uint32
	until     int64

	Shares      []Share // by number
	SharedFence uint64  // of those that are held
	marks       marks

	Job, RunKey string // of a job's runs
}

func (r *Model) grant(l *Lock, p Place) *wire.Reply {
	p.End = bounding{r}.begin(p)
	p.Ticket, p.Since = p.granted(), r.stamp()
	l.Owner, l.Unclaimed, l.holds, l.Lingering, l.Fence = &p, false, 1, p.linger, r.Granted+1
	reply := &wire.Reply{Code: wire.Code_OK, Fence: l.Fence, Holds: 1}
	if l.Lingering {
		reply.Block = FirstBlock
	}
	r.Granted += uint64(max(1, reply.Block))
	r.lead(l)
	return p.state(reply, p.requested)
}

func (r *Model) recallOwner(l *Lock) {
	if l.Owner != nil && l.Lingering && r.lateSession(l.Owner.Session) == nil {
		r.recalls = append(r.recalls, fact.Recall{Session: l.Owner.Session, Incarnation: r.boundTo(l.Owner.Session), Lock: l.Name, Handle: l.Owner.Handle})
	}
}

func (r *Model) refill(c *wire.Refill) *wire.Reply {
	if atLeast(r.Level) < wire.LevelLinger {
		return answer(wire.Code_INVALID)
	}
	if bad := checkName(c.Name); bad != nil {
		return bad
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	l := r.find(false, c.Name)
	switch {
	case !l.heldBy(c.Session, c.Handle):
		return answer(wire.Code_NOT_HELD)
	case l.Fence != c.Fence:
		return answer(wire.Code_OWNERSHIP_LOST)
	case !l.Lingering, c.Fences == 0:
		return answer(wire.Code_INVALID)
	}
	reply := &wire.Reply{Code: wire.Code_OK, Fence: r.Granted + 1, Block: min(c.Fences, MaxBlock)}
	r.Granted += uint64(reply.Block)
	return reply
}

// granted is the ticket by which a grant can be withdrawn: only a request that was
// queued has one.
func (p Place) granted() wire.Ticket {
	if p.arrival == 0 {
		return wire.Ticket{}
	}
	return p.Ticket
}

// lead emits the present leader of an election.
func (r *Model) lead(l *Lock) {
	if !l.Election {
		return
	}
	change := fact.LeaderChange{Election: l.Name}
	if o := l.Owner; o != nil {
		change.Leader = &fact.Leader{Value: o.value, Fence: l.Fence, Session: o.Session, Member: r.session(o.Session[:]).Member}
	}
	r.leaders = append(r.leaders, change)
}

func (r *Model) lock(t wire.Ticket, c *wire.Lock) *wire.Reply {
	bad := checkName(c.Name)
	switch {
	case bad != nil:
		return bad
	case !c.Election && len(c.Value) > 0:
		return answer(wire.Code_INVALID)
	case len(c.Value) > MaxCandidate:
		return answer(wire.Code_TOO_LARGE)
	}
	label, end, bad := bounding{r}.options(c)
	if bad == nil {
		_, bad = r.live(c.Session)
	}
	if bad != nil {
		return bad
	}
	place := Place{Label: label, End: end, Session: wire.ID(c.Session), Handle: c.Handle, Ticket: t, value: c.Value, linger: c.Lingering && !c.Election && atLeast(r.Level) >= wire.LevelLinger}
	l, bad := sets{r}.visited(c, place.Session)
	if bad != nil {
		return bad
	}
	if x := (sharing{r}); c.Shared && x.level() {
		return x.request(l, place, c)
	}
	return sharing{r}.exclusive(l, place, c)
}

// exclusive grants a request for a lock as it is, or queues it; nil: the lock does not exist.
func (x sharing) exclusive(l *Lock, place Place, c *wire.Lock) (bad *wire.Reply) {
	mine := l.heldBy(c.Session, c.Handle)
	if c.Fence != 0 && (!mine || l.Fence != c.Fence) {
		return answer(wire.Code_OWNERSHIP_LOST)
	}
	if l, bad = sets(x).cleared(l, c, place.Session); bad != nil {
		return bad
	}
	if l == nil {
		l = &Lock{Name: c.Name, Election: c.Election}
		x.Locks = append(x.Locks, l)
	}
	switch {
	case sets(x).idle(l):
		reply := x.Model.grant(l, place)
		sets(x).grantedOne(l, place)
		return reply
	case l.Unclaimed && l.Owner.Session == place.Session:
		reply := x.Model.grant(l, place)
		if len(l.Queue) > 0 || sets(x).wants(l, false) {
			x.recallOwner(l)
		}
		return reply
	case mine && c.Reentrant:
		if c.Limit > 0 && l.holds >= c.Limit {
			return answer(wire.Code_LIMIT_REACHED)
		}
		l.holds++
		return l.Owner.state(&wire.Reply{Code: wire.Code_OK, Fence: l.Fence, Holds: l.holds}, x.Now)
	case c.Wait:
		return x.line(l, place, c)
	case l.Owner != nil:
		if !c.Lingering || l.Owner.Session != place.Session {
			x.recallOwner(l)
		}
		return &wire.Reply{Code: wire.Code_LOCKED, Holder: x.holder(l)}
	}
	return x.exclusion(l, place)
}

func (r *Model) holder(l *Lock) *wire.Holder {
	if l.Owner == nil {
		return sharing{r}.oldest(l)
	}
	s := l.Owner.Session[:]
	return &wire.Holder{Session: s, Member: r.session(s).Member, Handle: l.Owner.Handle, Fence: l.Fence}
}

// heldBy reports whether the handle holds the lock. No handle holds an unclaimed
// one.
func (l *Lock) heldBy(session []byte, handle uint64) bool {
	return l != nil && l.Owner != nil && l.Owner.set == nil && !l.Unclaimed && bytes.Equal(l.Owner.Session[:], session) && l.Owner.Handle == handle
}

func (r *Model) unlock(c *wire.Unlock) *wire.Reply {
	if bad := checkName(c.Name); bad != nil {
		return bad
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	if x := (sharing{r}); c.Share != 0 && x.level() {
		return x.unlock(c)
	}
	l := r.find(c.Election, c.Name)
	switch {
	case !l.heldBy(c.Session, c.Handle):
		return answer(wire.Code_NOT_HELD)
	case l.Fence != c.Fence:
		return answer(wire.Code_OWNERSHIP_LOST)
	}
	defer r.traced(c.Trace)()
	return r.releaseHold(l)
}

// traced notes the trace of the release being applied, until done is called. Below its level, and
// beyond its limit, it means nothing.
func (r *Model) traced(trace []byte) (done func()) {
	if atLeast(r.Level) >= wire.LevelTrace && len(trace) <= MaxTrace {
		r.trace = trace
	}
	return func() { r.trace = nil }
}

// releaseHold releases one hold.
func (r *Model) releaseHold(l *Lock) *wire.Reply {
	l.holds--
	reply := &wire.Reply{Code: wire.Code_OK, Fence: l.Fence, Holds: l.holds}
	if l.holds == 0 {
		r.free(l, 0)
	}
	return reply
}

// free releases a lock of its owner.
func (r *Model) free(l *Lock, until int64) {
	l.Owner, l.Unclaimed, l.holds, l.Lingering, l.Fence = nil, false, 0, false, 0
	if until > r.Now {
		l.until = until
	} else {
		sharing{r}.serve(l)
	}
	if l.Owner == nil {
		r.lead(l)
	}
}

func (r *Model) proclaim(c *wire.Proclaim) *wire.Reply {
	if bad := checkName(c.Name); bad != nil {
		return bad
	}
	if len(c.Value) > MaxCandidate {
		return answer(wire.Code_TOO_LARGE)
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	l := r.find(true, c.Name)
	switch {
	case !l.heldBy(c.Session, c.Handle):
		return answer(wire.Code_NOT_HELD)
	case l.Fence != c.Fence:
		return answer(wire.Code_OWNERSHIP_LOST)
	case !bytes.Equal(l.Owner.value, c.Value):
		l.Owner.value = c.Value
		r.lead(l)
	}
	return &wire.Reply{Code: wire.Code_OK, Fence: l.Fence, Holds: l.holds}
}

// withdraw undoes what a ticket has obtained, wherever that is.
func (r *Model) withdraw(inc wire.ID, c *wire.Withdraw) *wire.Reply {
	if len(c.Incarnation) != 16 {
		return answer(wire.Code_INVALID)
	}
	t := wire.Ticket{Incarnation: wire.ID(c.Incarnation), Seq: c.Seq}
	if t.Incarnation != inc {
		return answer(wire.Code_NOT_HELD)
	}
	if queued := r.places(func(p Place) bool { return p.Ticket == t && r.lateSession(p.Session) == nil }); len(queued) > 0 {
		r.serveAll(r.remove(queued, wire.Code_WITHDRAWN))
		return answer(wire.Code_OK)
	}
	for _, l := range r.Locks {
		if l.Owner != nil && !l.Unclaimed && l.Owner.Ticket == t && r.lateSession(l.Owner.Session) == nil {
			if l.Owner.Ticket = (wire.Ticket{}); l.Job != "" {
				jobs{r}.reached("a run withdrawn")
				return jobs{r}.undo(l)
			}
			return r.releaseHold(l)
		}
	}
	if reply := (sharing{r}).withdraw(t); reply != nil {
		return reply
	}
	if reply := (sets{r}).withdraw(t); reply != nil {
		return reply
	}
	for _, s := range r.Semaphores {
		for _, p := range s.Permits {
			if !p.Unclaimed && p.Ticket == t && r.lateSession(p.Session) == nil {
				r.putBack(s, p.Fence, 0)
				return &wire.Reply{Code: wire.Code_OK, Fence: p.Fence}
			}
		}
	}
	return answer(wire.Code_NOT_HELD)
}

// Tickets returns the tickets of an incarnation that have obtained something.
func (r *Model) Tickets(inc wire.ID) (tickets []wire.Ticket) {
	for _, p := range r.places(func(Place) bool { return true }) {
		tickets = append(tickets, p.Ticket)
	}
	for _, l := range r.Locks {
		if l.Owner != nil {
			tickets = append(tickets, l.Owner.Ticket)
		}
		for _, sh := range l.Live() {
			tickets = append(tickets, sh.Ticket)
		}
	}
	for _, s := range r.Sets {
		tickets = append(tickets, s.Ticket)
	}
	for _, s := range r.Semaphores {
		for _, p := range s.Permits {
			tickets = append(tickets, p.Ticket)
		}
	}
	return slices.DeleteFunc(tickets, func(t wire.Ticket) bool { return t.Incarnation != inc })
}

func (r *Model) find(election bool, name string) *Lock {
	for _, l := range r.Locks {
		if l.Election == election && l.Name == name {
			return l
		}
	}
	return nil
}

func (l *Lock) key() string {
	switch {
	case l.Election:
		return "e" + l.Name
	case l.Job != "":
		return "j" + l.Name
	}
	return "l" + l.Name
}

func checkName(name string) *wire.Reply {
	switch {
	case len(name) > MaxName:
		return answer(wire.Code_TOO_LARGE)
	case name == "" || !utf8.ValidString(name) || strings.Contains(name, "\x00"):
		return answer(wire.Code_INVALID)
	}
	return nil
}
