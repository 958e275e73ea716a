package machine

import (
	"bytes"
	"math"
	"slices"

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
