package machine

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// The machine's dumb twin: DESIGN section 4 written down once more with
// slices, copies and linear searches, and nothing shared with the machine but
// the messages and the limits. It is slow on purpose: whatever is clever in the
// machine is absent here.
type reference struct {
	index    uint64
	now      int64
	granted  uint64
	arrivals int
	members  []refMember
	incs     []refIncarnation
	sessions []refSession
	locks    []refLock

	outcomes []wire.Outcome
	ended    []wire.Ended
}

type refMember struct {
	id, boot uint64
	attempt  uint32
	last     wire.ID
}

type refIncarnation struct {
	id           wire.ID
	member       uint64
	ttl, renewed int64
	floor        uint64
	answered     []wire.Outcome
}

type refSession struct {
	id, inc           wire.ID
	ttl, delay        int64
	created, deadline int64 // deadline is filled in by due
}

type refPlace struct {
	session wire.ID
	handle  uint64
	ticket  wire.Ticket
	arrival int
}

type refLock struct {
	name  string
	owner *refPlace
	holds uint32
	fence uint64
	until int64
	queue []refPlace
}

// apply takes a decoded batch; nil is the first entry of a term.
func (r *reference) apply(index uint64, b *wire.Batch) ([]wire.Outcome, []wire.Ended) {
	r.index, r.outcomes, r.ended = index, nil, nil
	if b == nil {
		for i := range r.incs {
			r.incs[i].renewed = r.now
		}
		return nil, nil
	}
	r.now = max(r.now, b.Time)
	r.fire()
	for _, s := range b.Submissions {
		if len(s.Incarnation) == 16 {
			r.submission(wire.ID(s.Incarnation), s)
		}
	}
	return r.outcomes, r.ended
}

func (r *reference) fire() {
	var due []refSession
	for _, s := range r.sessions {
		inc := r.inc(s.inc)
		if s.deadline = refAdd(inc.renewed, s.ttl); s.deadline <= r.now {
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b refSession) int {
		switch {
		case a.deadline != b.deadline:
			return sign(a.deadline < b.deadline)
		case a.created != b.created:
			return sign(a.created < b.created)
		}
		return bytes.Compare(a.id[:], b.id[:])
	})
	r.end(due, true)
	for {
		first := -1
		for i, l := range r.locks {
			if l.until == 0 || l.until > r.now {
				continue
			}
			if first < 0 || l.until < r.locks[first].until || l.until == r.locks[first].until && l.name < r.locks[first].name {
				first = i
			}
		}
		if first < 0 {
			break
		}
		r.locks[first].until = 0
		r.handOn(r.locks[first].name)
	}
	var silent []wire.ID
	for _, inc := range r.incs {
		if len(r.bound(inc.id)) == 0 && refAdd(inc.renewed, inc.ttl) <= r.now {
			silent = append(silent, inc.id)
		}
	}
	slices.SortFunc(silent, func(a, b wire.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range silent {
		r.forget(id, true)
	}
}

func (r *reference) submission(id wire.ID, s *wire.Submission) {
	if inc := r.inc(id); inc != nil && s.Floor > inc.floor {
		inc.floor = s.Floor
		inc.answered = slices.DeleteFunc(inc.answered, func(o wire.Outcome) bool { return o.Ticket.Seq <= s.Floor })
	}
	for _, c := range s.Calls {
		t := wire.Ticket{Incarnation: id, Seq: c.Seq}
		floor := s.Floor
		if inc := r.inc(id); inc != nil {
			floor = inc.floor
		}
		if c.Seq <= floor {
			continue
		}
		if c.Seq-floor > MaxInFlight {
			r.say(t, wire.Code_TOO_LARGE)
			continue
		}
		if old := r.answered(t); old != nil {
			r.outcomes = append(r.outcomes, *old)
			continue
		}
		reply := r.command(t, floor, c.Command)
		if reply.Index == 0 {
			reply.Index = r.index
		}
		o := wire.Outcome{Ticket: t, Reply: reply, More: reply.Code == wire.Code_QUEUED}
		r.outcomes = append(r.outcomes, o)
		if inc := r.inc(id); inc != nil {
			inc.answered = append(inc.answered, o)
		}
	}
}

func (r *reference) command(t wire.Ticket, floor uint64, data []byte) *wire.Reply {
	c := new(wire.Command)
	err := proto.Unmarshal(data, c)
	if reg := c.GetRegister(); err == nil && reg != nil {
		return r.register(t.Incarnation, floor, reg)
	}
	inc := r.inc(t.Incarnation)
	if inc == nil {
		return refCode(wire.Code_UNKNOWN_INCARNATION)
	}
	switch {
	case err != nil:
	case c.GetRenew() != nil:
		inc.renewed = r.now
		return refCode(wire.Code_OK)
	case c.GetDeregister() != nil:
		r.forget(t.Incarnation, false)
		return refCode(wire.Code_OK)
	case c.GetOpenSession() != nil:
		return r.open(inc, c.GetOpenSession())
	case c.GetCloseSession() != nil:
		return r.close(c.GetCloseSession())
	case c.GetLock() != nil:
		return r.lock(t, c.GetLock())
	case c.GetUnlock() != nil:
		return r.unlock(c.GetUnlock())
	case c.GetWithdraw() != nil:
		return r.withdraw(t.Incarnation, c.GetWithdraw())
	}
	return refCode(wire.Code_INVALID)
}

func (r *reference) register(id wire.ID, floor uint64, c *wire.Register) *wire.Reply {
	if c.Ttl < MinTTL || c.Ttl > MaxTTL || c.Member == 0 || id == (wire.ID{}) {
		return refCode(wire.Code_INVALID)
	}
	if inc := r.inc(id); inc != nil {
		if inc.member != c.Member {
			return refCode(wire.Code_INVALID)
		}
		return refCode(wire.Code_OK)
	}
	for _, m := range r.members {
		if m.id == c.Member && (m.last == id || m.boot > c.Boot || m.boot == c.Boot && m.attempt >= c.Attempt) {
			return refCode(wire.Code_STALE_BOOT)
		}
	}
	for _, m := range r.members {
		if m.id == c.Member && r.inc(m.last) != nil {
			r.forget(m.last, true)
		}
	}
	r.members = slices.DeleteFunc(r.members, func(m refMember) bool { return m.id == c.Member })
	r.members = append(r.members, refMember{id: c.Member, boot: c.Boot, attempt: c.Attempt, last: id})
	r.incs = append(r.incs, refIncarnation{id: id, member: c.Member, ttl: c.Ttl, renewed: r.now, floor: floor})
	return refCode(wire.Code_OK)
}

// forget ends an incarnation, its sessions, and its places under other
// sessions.
func (r *reference) forget(id wire.ID, invalidated bool) {
	r.end(r.bound(id), invalidated)
	var places []refPlace
	for _, l := range r.locks {
		for _, p := range l.queue {
			if p.ticket.Incarnation == id {
				places = append(places, p)
			}
		}
	}
	r.leave(places, wire.Code_WITHDRAWN)
	r.incs = slices.DeleteFunc(r.incs, func(i refIncarnation) bool { return i.id == id })
}

func (r *reference) open(inc *refIncarnation, c *wire.OpenSession) *wire.Reply {
	switch {
	case len(c.Id) != 16 || wire.ID(c.Id) == (wire.ID{}):
		return refCode(wire.Code_INVALID)
	case len(c.Name) > MaxName:
		return refCode(wire.Code_TOO_LARGE)
	case strings.ContainsRune(c.Name, 0) || c.Ttl < MinTTL || c.Ttl > MaxTTL || c.LockDelay < 0 || c.LockDelay > MaxLockDelay:
		return refCode(wire.Code_INVALID)
	}
	if s := r.session(c.Id); s != nil {
		if s.inc != inc.id {
			return refCode(wire.Code_INVALID)
		}
		return refCode(wire.Code_OK)
	}
	inc.renewed = r.now
	r.sessions = append(r.sessions, refSession{
		id: wire.ID(c.Id), inc: inc.id, ttl: c.Ttl, delay: c.LockDelay, created: int64(r.index),
	})
	return refCode(wire.Code_OK)
}

func (r *reference) close(c *wire.CloseSession) *wire.Reply {
	if len(c.Id) != 16 {
		return refCode(wire.Code_INVALID)
	}
	s := r.session(c.Id)
	if s == nil {
		return refCode(wire.Code_SESSION_EXPIRED)
	}
	r.end([]refSession{*s}, !c.Graceful)
	return refCode(wire.Code_OK)
}

// end ends sessions at one moment: first they are dead, then their queue
// places go, then their holds, each in order of arrival.
func (r *reference) end(gone []refSession, invalidated bool) {
	for _, s := range gone {
		r.sessions = slices.DeleteFunc(r.sessions, func(o refSession) bool { return o.id == s.id })
		r.ended = append(r.ended, wire.Ended{Incarnation: s.inc, Session: s.id})
	}
	for _, s := range gone {
		var places []refPlace
		for _, l := range r.locks {
			for _, p := range l.queue {
				if p.session == s.id {
					places = append(places, p)
				}
			}
		}
		r.leave(places, wire.Code_SESSION_EXPIRED)
	}
	for _, s := range gone {
		var held []refLock
		for _, l := range r.locks {
			if l.owner != nil && l.owner.session == s.id {
				held = append(held, l)
			}
		}
		slices.SortFunc(held, func(a, b refLock) int { return sign(a.fence < b.fence) })
		for _, l := range held {
			at := r.find(l.name)
			at.owner, at.holds, at.fence = nil, 0, 0
			if invalidated && s.delay > 0 {
				at.until = refAdd(r.now, s.delay)
			} else {
				r.handOn(l.name)
			}
		}
	}
}

func (r *reference) leave(places []refPlace, code wire.Code) {
	slices.SortFunc(places, func(a, b refPlace) int { return sign(a.arrival < b.arrival) })
	for _, p := range places {
		for i := range r.locks {
			q := &r.locks[i].queue
			*q = slices.DeleteFunc(*q, func(o refPlace) bool { return o.arrival == p.arrival })
		}
		r.say(p.ticket, code)
	}
}

// handOn grants a free lock to the first that waits, or forgets it.
func (r *reference) handOn(name string) {
	l := r.find(name)
	if len(l.queue) == 0 {
		r.locks = slices.DeleteFunc(r.locks, func(o refLock) bool { return o.name == name })
		return
	}
	next := l.queue[0]
	l.queue = slices.Clone(l.queue[1:])
	r.final(next.ticket, r.grant(l, next))
}

func (r *reference) grant(l *refLock, p refPlace) *wire.Reply {
	r.granted++
	l.owner, l.holds, l.fence = &p, 1, r.granted
	return &wire.Reply{Code: wire.Code_OK, Index: r.index, Fence: l.fence, Holds: 1}
}

func (r *reference) lock(t wire.Ticket, c *wire.Lock) *wire.Reply {
	if bad := refName(c.Name); bad != nil {
		return bad
	}
	if len(c.Session) != 16 {
		return refCode(wire.Code_INVALID)
	}
	if r.session(c.Session) == nil {
		return refCode(wire.Code_SESSION_EXPIRED)
	}
	place := refPlace{session: wire.ID(c.Session), handle: c.Handle, ticket: t}
	l := r.find(c.Name)
	mine := l != nil && l.owner != nil && l.owner.session == place.session && l.owner.handle == place.handle
	if c.Fence != 0 && (!mine || l.fence != c.Fence) {
		return refCode(wire.Code_OWNERSHIP_LOST)
	}
	if l == nil {
		r.locks = append(r.locks, refLock{name: c.Name})
		return r.grant(r.find(c.Name), place)
	}
	if mine && c.Reentrant {
		if c.Limit > 0 && l.holds >= c.Limit {
			return refCode(wire.Code_LIMIT_REACHED)
		}
		l.holds++
		return &wire.Reply{Code: wire.Code_OK, Fence: l.fence, Holds: l.holds}
	}
	if c.Wait {
		r.arrivals++
		place.arrival = r.arrivals
		l.queue = append(l.queue, place)
		return refCode(wire.Code_QUEUED)
	}
	if l.owner != nil {
		return refCode(wire.Code_LOCKED)
	}
	return &wire.Reply{Code: wire.Code_LOCK_DELAY, Delay: l.until - r.now}
}

func (r *reference) unlock(c *wire.Unlock) *wire.Reply {
	if bad := refName(c.Name); bad != nil {
		return bad
	}
	if len(c.Session) != 16 {
		return refCode(wire.Code_INVALID)
	}
	if r.session(c.Session) == nil {
		return refCode(wire.Code_SESSION_EXPIRED)
	}
	l := r.find(c.Name)
	if l == nil || l.owner == nil || l.owner.session != wire.ID(c.Session) || l.owner.handle != c.Handle {
		return refCode(wire.Code_NOT_HELD)
	}
	if l.fence != c.Fence {
		return refCode(wire.Code_OWNERSHIP_LOST)
	}
	return r.giveBack(l)
}

func (r *reference) giveBack(l *refLock) *wire.Reply {
	reply := &wire.Reply{Code: wire.Code_OK, Fence: l.fence, Holds: l.holds - 1}
	l.holds--
	if l.holds == 0 {
		l.owner, l.fence = nil, 0
		r.handOn(l.name)
	}
	return reply
}

func (r *reference) withdraw(inc wire.ID, c *wire.Withdraw) *wire.Reply {
	if bad := refName(c.Name); bad != nil {
		return bad
	}
	if len(c.Session) != 16 {
		return refCode(wire.Code_INVALID)
	}
	same := func(p refPlace) bool {
		return p.ticket == wire.Ticket{Incarnation: inc, Seq: c.Seq} && p.session == wire.ID(c.Session) && p.handle == c.Handle
	}
	l := r.find(c.Name)
	if l == nil {
		return refCode(wire.Code_NOT_HELD)
	}
	for _, p := range l.queue {
		if same(p) {
			r.leave([]refPlace{p}, wire.Code_WITHDRAWN)
			return refCode(wire.Code_OK)
		}
	}
	if l.owner != nil && same(*l.owner) {
		l.owner.ticket = wire.Ticket{}
		return r.giveBack(l)
	}
	return refCode(wire.Code_NOT_HELD)
}

// final is the last outcome of a ticket; it replaces the stored one, if any.
func (r *reference) final(t wire.Ticket, reply *wire.Reply) {
	if reply.Index == 0 {
		reply.Index = r.index
	}
	o := wire.Outcome{Ticket: t, Reply: reply}
	r.outcomes = append(r.outcomes, o)
	if old := r.answered(t); old != nil {
		*old = o
	}
}

func (r *reference) say(t wire.Ticket, code wire.Code) { r.final(t, refCode(code)) }

func (r *reference) answered(t wire.Ticket) *wire.Outcome {
	if inc := r.inc(t.Incarnation); inc != nil {
		for i := range inc.answered {
			if inc.answered[i].Ticket == t {
				return &inc.answered[i]
			}
		}
	}
	return nil
}

func (r *reference) inc(id wire.ID) *refIncarnation {
	for i := range r.incs {
		if r.incs[i].id == id {
			return &r.incs[i]
		}
	}
	return nil
}

func (r *reference) session(id []byte) *refSession {
	for i := range r.sessions {
		if bytes.Equal(r.sessions[i].id[:], id) {
			return &r.sessions[i]
		}
	}
	return nil
}

// bound returns the sessions of an incarnation, by creation.
func (r *reference) bound(inc wire.ID) []refSession {
	var bound []refSession
	for _, s := range r.sessions {
		if s.inc == inc {
			bound = append(bound, s)
		}
	}
	slices.SortFunc(bound, func(a, b refSession) int {
		if a.created != b.created {
			return sign(a.created < b.created)
		}
		return bytes.Compare(a.id[:], b.id[:])
	})
	return bound
}

func (r *reference) find(name string) *refLock {
	for i := range r.locks {
		if r.locks[i].name == name {
			return &r.locks[i]
		}
	}
	return nil
}

func refName(name string) *wire.Reply {
	switch {
	case len(name) > MaxName:
		return refCode(wire.Code_TOO_LARGE)
	case name == "" || !utf8.ValidString(name) || strings.Contains(name, "\x00"):
		return refCode(wire.Code_INVALID)
	}
	return nil
}

func refCode(code wire.Code) *wire.Reply { return &wire.Reply{Code: code} }

func refAdd(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}

func sign(less bool) int {
	if less {
		return -1
	}
	return 1
}
