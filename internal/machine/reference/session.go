package reference

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Incarnations and sessions.

func (r *Model) register(id wire.ID, submitter, floor uint64, c *wire.Register) *wire.Reply {
	if c.Ttl < MinTTL || c.Ttl > MaxTTL || c.Member == 0 || c.Member != submitter || id == (wire.ID{}) ||
		len(c.Name) > MaxName || len(c.Advertise) > 260 || len(c.NextToken) != 16 || wire.ID(c.NextToken) == (wire.ID{}) || len(c.Key) != 0 && len(c.Key) != 32 {
		return answer(wire.Code_INVALID)
	}
	if r.Incarnation(id) != nil {
		return answer(wire.Code_OK)
	}
	allowed := []string{string(c.NextToken)}
	for _, token := range c.Tokens {
		if len(token) != 16 || wire.ID(token) == (wire.ID{}) {
			token = nil
		}
		allowed = append(allowed, string(token))
	}
	if len(c.Tokens) == 0 {
		allowed = append(allowed, "")
	}
	if len(r.Tickets(id)) > 0 || r.retired(id) && r.Level >= wire.LevelBounds {
		return answer(wire.Code_UNKNOWN_INCARNATION)
	}
	m := r.Member(c.Member)
	further := r.Groups.Number != 0
	if bad := (groups{r}).mayRegister(c.Member); bad != nil {
		return bad
	}
	if m == nil && !slices.Contains(allowed, "") {
		return answer(wire.Code_STALE_BOOT)
	}
	if m != nil {
		switch {
		case m.Removed:
			return answer(wire.Code_REMOVED)
		case m.last == id:
			return answer(wire.Code_UNKNOWN_INCARNATION)
		case m.boot > c.Boot || m.boot == c.Boot && m.attempt >= c.Attempt, !further && !slices.Contains(allowed, m.token):
			return answer(wire.Code_STALE_BOOT)
		}
		if m.key != "" && m.key != string(c.Key) {
			return answer(wire.Code_INVALID)
		}
	}
	if atLeast(c.FeatureLevel) < atLeast(r.Level) {
		return answer(wire.Code_LEVEL)
	}
	switch {
	case m != nil && r.running(m) != nil:
		r.drop(m.last, fact.Superseded)
	case r.count(false) >= MaxIncarnations:
		return answer(wire.Code_BUSY)
	}
	r.members = slices.DeleteFunc(r.members, func(m Member) bool { return m.ID == c.Member })
	r.members = append(r.members, Member{ID: c.Member, boot: c.Boot, attempt: c.Attempt, last: id, token: string(c.NextToken), key: string(c.Key), level: c.FeatureLevel,
		name: c.Name, advertise: c.Advertise, ephemeral: c.Ephemeral})
	if !further && r.Config == (fact.GroupConfig{}) && slices.Contains([]uint32{1, 3, 5, 7}, c.Voters) {
		r.Config = fact.GroupConfig{Voters: c.Voters, ReplaceAfter: 60 * second}
	}
	r.Incarnations = append(r.Incarnations, Incarnation{ID: id, Member: c.Member, ttl: c.Ttl, renewed: r.Now, Floor: floor})
	return answer(wire.Code_OK)
}

// raise raises the feature level.
func (r *Model) raise(by uint64, c *wire.RaiseLevel) *wire.Reply {
	if c.Level <= atLeast(r.Level) {
		return answer(wire.Code_OK)
	}
	if atLeast(r.Member(by).level) < c.Level {
		return answer(wire.Code_LEVEL)
	}
	for _, m := range r.members {
		if !c.Force && !m.Removed && atLeast(m.level) < c.Level {
			return answer(wire.Code_LEVEL)
		}
	}
	for _, id := range c.Members {
		if m := r.Member(id); !c.Force && (m == nil || atLeast(m.level) < c.Level) {
			return answer(wire.Code_LEVEL)
		}
	}
	for _, i := range r.Incarnations {
		if !i.Client && atLeast(r.Member(i.Member).level) < c.Level {
			return answer(wire.Code_LEVEL)
		}
	}
	r.Level = c.Level
	return answer(wire.Code_OK)
}

// atLeast reads a level, of which 0 is the first.
func atLeast(level uint32) uint32 { return max(level, 1) }

// drop ends an incarnation, its sessions except those without a TTL, and its places
// under other sessions.
func (r *Model) drop(id wire.ID, why fact.Cause) {
	var ending []*Session
	for _, s := range r.bound(id) {
		if s.ttl > 0 {
			ending = append(ending, s)
		}
	}
	r.end(ending, why, r.dropPlaces(id))
	for _, s := range r.bound(id) {
		s.Incarnation = wire.ID{}
		r.ended = append(r.ended, fact.Ended{Incarnation: id, Session: s.ID, Unbound: true, Outcomes: len(r.outcomes)})
		shards{r}.unbound(s.ID)
	}
	if inc := r.Incarnation(id); inc.Client {
		r.retire(id, inc.until)
	}
	r.Incarnations = slices.DeleteFunc(r.Incarnations, func(i Incarnation) bool { return i.ID == id })
}

// dropPlaces removes the queue places of an incarnation, except those under its own
// sessions with a TTL, which end with it.
func (r *Model) dropPlaces(id wire.ID) shortened {
	return r.remove(r.places(func(p Place) bool {
		s := r.session(p.Session[:])
		return s != nil && p.Ticket.Incarnation == id && !(s.Incarnation == id && s.ttl > 0)
	}), wire.Code_WITHDRAWN)
}

func (r *Model) attach(inc *Incarnation, c *wire.AttachSession) *wire.Reply {
	s, bad := r.live(c.Id)
	switch {
	case bad != nil:
		return bad
	case s.ttl != 0 || s.Standalone:
		return answer(wire.Code_INVALID)
	case s.Incarnation == inc.ID:
		inc.renewed = r.Now
		return r.opened(s)
	case s.Incarnation != (wire.ID{}):
		return answer(wire.Code_SESSION_BOUND)
	case inc.Client && len(s.Checks) > 0:
		return answer(wire.Code_INVALID)
	case (s.Member != inc.Member || s.Client != inc.Client) && r.full(inc, false):
		return answer(wire.Code_BUSY)
	}
	if bad := r.lookAt(inc.Member, s.Checks); bad != nil {
		return bad
	}
	inc.renewed = r.Now
	s.Incarnation, s.Member, s.Client = inc.ID, inc.Member, inc.Client
	var held []*Lock
	for _, l := range r.Locks {
		if l.Owner != nil && l.Owner.set == nil && l.Owner.Session == s.ID {
			l.Unclaimed = true
			held = append(held, l)
		}
		for i := range l.Shares {
			if sh := &l.Shares[i]; sh.until == 0 && sh.set == nil && sh.Session == s.ID {
				sh.Unclaimed = true
			}
		}
	}
	for _, set := range r.Sets {
		set.Unclaimed = set.Unclaimed || set.Session == s.ID
	}
	slices.SortFunc(held, func(a, b *Lock) int { return cmp.Compare(a.Fence, b.Fence) })
	for _, l := range held {
		r.lead(l) // at another member
	}
	for _, sem := range r.Semaphores {
		for i := range sem.Permits {
			if p := &sem.Permits[i]; p.until == 0 && p.Session == s.ID {
				p.Unclaimed = true
			}
		}
	}
	shards{r}.attached(s.ID)
	return r.opened(s)
}

func (r *Model) close(inc wire.ID, c *wire.CloseSession) *wire.Reply {
	s, bad := r.live(c.Id)
	if bad != nil {
		return bad
	}
	if c.Graceful && s.Incarnation != inc && s.Incarnation != (wire.ID{}) {
		return answer(wire.Code_SESSION_BOUND)
	}
	why := fact.Forced
	if c.Graceful {
		why = fact.Closed
	}
	r.end([]*Session{s}, why, shortened{})
	return answer(wire.Code_OK)
}

// end ends sessions in one entry, and releases what they had as far as the entry may.
// shortened has lost other waiters in the same entry.
func (r *Model) end(ending []*Session, why fact.Cause, shortened shortened) {
	r.kill(ending, why)
	r.releaseDead()
	r.serveAll(shortened)
}

// kill ends sessions without releasing anything yet.
func (r *Model) kill(ending []*Session, why fact.Cause) {
	for _, s := range ending {
		r.Sessions = slices.DeleteFunc(r.Sessions, func(o *Session) bool { return o == s })
		r.ended = append(r.ended, fact.Ended{
			Incarnation: s.Incarnation, Session: s.ID, Outcomes: len(r.outcomes),
			Member: s.Member, Name: s.name, Cause: why, Held: r.heldBy(s.ID),
		})
		d := &dead{s: s, at: r.Now}
		if why != fact.Closed {
			d.until = later(r.Now, s.delay)
		}
		r.dead = append(r.dead, d)
		shards{r}.ended(s.ID)
	}
}

// heldBy counts what a session holds.
func (r *Model) heldBy(id wire.ID) (n int) {
	for _, l := range r.Locks {
		if l.Owner != nil && l.Owner.Session == id {
			n++
		}
	}
	for _, l := range r.Locks {
		for _, sh := range l.Live() {
			if sh.Session == id {
				n++
			}
		}
	}
	for _, s := range r.Semaphores {
		for _, p := range s.Permits {
			if p.until == 0 && p.Session == id {
				n++
			}
		}
	}
	for _, e := range r.keys.entries {
		if e.Session == id {
			n++
		}
	}
	return n + shards{r}.held(id)
}

// places returns the queue places that are meant, by arrival.
func (r *Model) places(meant func(Place) bool) []Place {
	var places []Place
	add := func(queue []Place) {
		for _, p := range queue {
			if meant(p) {
				places = append(places, p)
			}
		}
	}
	for _, l := range r.Locks {
		add(l.Queue)
	}
	for _, s := range r.Semaphores {
		add(s.Queue)
	}
	for _, s := range r.Waiting {
		of := s.Place
		of.set = s
		add([]Place{of})
	}
	slices.SortFunc(places, func(a, b Place) int { return cmp.Compare(a.arrival, b.arrival) })
	return places
}

// queued counts the queue places of a process, and the names of its sets that wait.
func (r *Model) queued(inc wire.ID) (n int) {
	for _, p := range r.places(func(p Place) bool { return p.Ticket.Incarnation == inc }) {
		n += max(1, p.names())
	}
	return n
}

// names counts the names of a set that waits; 0: it is none.
func (p Place) names() int {
	if p.set == nil {
		return 0
	}
	return len(p.set.Parts)
}

// remove removes places and returns the queues that they were in.
func (r *Model) remove(places []Place, code wire.Code) (shortened shortened) {
	for _, p := range places {
		same := func(o Place) bool { return o.arrival == p.arrival }
		for _, l := range r.Locks {
			before := len(l.Queue)
			if l.Queue = slices.DeleteFunc(l.Queue, same); len(l.Queue) < before && !slices.Contains(shortened.locks, l) {
				shortened.locks = append(shortened.locks, l)
			}
		}
		for _, s := range r.Semaphores {
			before := len(s.Queue)
			if s.Queue = slices.DeleteFunc(s.Queue, same); len(s.Queue) < before {
				shortened.semaphores = append(shortened.semaphores, s)
			}
		}
		if p.set != nil {
			for _, l := range (sets{r}).leave(p.set) {
				if !slices.Contains(shortened.locks, l) {
					shortened.locks = append(shortened.locks, l)
				}
			}
		}
		r.say(p.Ticket, code)
	}
	return shortened
}

// live finds a session, or the refusal of a command under it.
func (r *Model) live(id []byte) (*Session, *wire.Reply) {
	if len(id) != 16 {
		return nil, answer(wire.Code_INVALID)
	}
	if s := r.session(id); s != nil {
		return s, nil
	}
	return nil, answer(wire.Code_SESSION_EXPIRED)
}

func (r *Model) session(id []byte) *Session {
	for _, s := range r.Sessions {
		if bytes.Equal(s.ID[:], id) {
			return s
		}
	}
	return nil
}

// bound returns the sessions of an incarnation, by creation.
func (r *Model) bound(inc wire.ID) []*Session {
	var bound []*Session
	for _, s := range r.Sessions {
		if s.Incarnation == inc {
			bound = append(bound, s)
		}
	}
	slices.SortFunc(bound, byAge)
	return bound
}

// ofMember returns all sessions of a member, unbound ones included, by creation.
func (r *Model) ofMember(member uint64) []*Session {
	var all []*Session
	for _, s := range r.Sessions {
		if s.Member == member && !s.Client {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, byAge)
	return all
}

func byAge(a, b *Session) int {
	return cmp.Or(cmp.Compare(a.created, b.created), bytes.Compare(a.ID[:], b.ID[:]))
}
