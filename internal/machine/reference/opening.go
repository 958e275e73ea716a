package reference

import (
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// How sessions begin: bound to a process, or standalone.

func (r *Model) open(inc *Incarnation, c *wire.OpenSession) *wire.Reply {
	reply, opened := r.opening(inc, c, false)
	if opened != nil {
		inc.renewed = r.Now
		opened.Incarnation = inc.ID
	}
	return reply
}

// opening opens a session that is not bound yet; nil: it is refused, or there already.
func (r *Model) opening(inc *Incarnation, c *wire.OpenSession, alone bool) (*wire.Reply, *Session) {
	if bad := checkOpening(c); bad != nil {
		return bad, nil
	}
	if inc.Client && len(c.Checks) > 0 {
		return answer(wire.Code_INVALID), nil
	}
	if s := r.session(c.Id); s != nil {
		if s.Standalone != alone || s.Member != inc.Member || !alone && s.Incarnation != inc.ID {
			return answer(wire.Code_INVALID), nil
		}
		return r.opened(s), nil
	}
	if r.lateSession(wire.ID(c.Id)) != nil {
		return answer(wire.Code_INVALID), nil
	}
	if len(r.Sessions) >= r.reserving(MaxAllSessions, ReservedSessions) || r.full(inc, alone) {
		return answer(wire.Code_BUSY), nil
	}
	if bad := r.lookAt(inc.Member, c.Checks); bad != nil {
		return bad, nil
	}
	if alone && c.Ttl > 0 && r.alone() >= MaxStandalone {
		return answer(wire.Code_BUSY), nil
	}
	s := &Session{
		ID: wire.ID(c.Id), Member: inc.Member, Client: inc.Client, name: c.Name, ttl: c.Ttl, delay: c.LockDelay,
		created: r.index, behavior: c.Behavior, Checks: c.Checks,
	}
	r.Sessions = append(r.Sessions, s)
	return r.opened(s), s
}

// opened says when the session can end.
func (r *Model) opened(s *Session) *wire.Reply {
	reply := &wire.Reply{Code: wire.Code_OK, LockDelay: s.delay}
	for _, name := range s.Checks {
		reply.Checks = append(reply.Checks, r.left(s.Member, name))
	}
	return reply
}

func checkOpening(c *wire.OpenSession) *wire.Reply {
	switch {
	case len(c.Id) != 16 || wire.ID(c.Id) == (wire.ID{}):
		return answer(wire.Code_INVALID)
	case len(c.Name) > MaxName:
		return answer(wire.Code_TOO_LARGE)
	case strings.ContainsRune(c.Name, 0):
		return answer(wire.Code_INVALID)
	case c.Ttl != 0 && (c.Ttl < MinTTL || c.Ttl > MaxTTL):
		return answer(wire.Code_INVALID)
	case c.LockDelay < 0 || c.LockDelay > MaxLockDelay:
		return answer(wire.Code_INVALID)
	case c.Behavior != wire.Behavior_RELEASE && c.Behavior != wire.Behavior_DELETE:
		return answer(wire.Code_INVALID)
	case len(c.Checks) > MaxSessionChecks:
		return answer(wire.Code_TOO_LARGE)
	}
	for i, name := range c.Checks {
		if bad := checkName(name); bad != nil {
			return bad
		}
		if slices.Contains(c.Checks[:i], name) {
			return answer(wire.Code_INVALID)
		}
	}
	return nil
}

func (r *Model) create(inc *Incarnation, c *wire.OpenSession) *wire.Reply {
	if c == nil {
		return answer(wire.Code_INVALID)
	}
	reply, created := r.opening(inc, c, true)
	if created != nil {
		created.Standalone, created.renewed = true, r.Now
	}
	return reply
}

func (r *Model) renewSession(c *wire.RenewSession) *wire.Reply {
	s, bad := r.live(c.Id)
	switch {
	case bad != nil:
		return bad
	case !s.Standalone:
		return answer(wire.Code_INVALID)
	}
	if s.ttl > 0 {
		s.renewed = r.Now
	}
	return r.opened(s)
}

// alone counts those with a TTL.
func (r *Model) alone() (n int) {
	for _, s := range r.Sessions {
		if s.Standalone && s.ttl > 0 {
			n++
		}
	}
	return n
}
