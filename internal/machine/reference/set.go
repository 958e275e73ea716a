package reference

import (
	"bytes"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// Sets: several locks that are granted and released as a whole.

// MaxPassed is how often a set that waits is passed over before its names are reserved for it.
const MaxPassed = 4

// Set is a set that is held, or that waits.
type Set struct {
	Place
	Parts     []Part
	Fence     uint64 // of one that is held
	Unclaimed bool   // since its session was attached
	Passed    int    // times, of one that waits
	refuses   bool   // deadlocks
}

// Part is a name of a set.
type Part struct {
	Name   string
	Shared bool
	number uint64 // of the share, once it is granted
}

// sets is the rules of sets.
type sets struct{ *Model }

// command executes a command about sets, or a later one.
func (x sets) command(t wire.Ticket, c *wire.Command) *wire.Reply {
	switch op := c.Op.(type) {
	case *wire.Command_LockSet:
		return x.lock(t, op.LockSet)
	case *wire.Command_UnlockSet:
		return x.unlock(op.UnlockSet)
	}
	return bounding(x).command(c)
}

func (x sets) lock(t wire.Ticket, c *wire.LockSet) *wire.Reply {
	s, bad := x.wanted(t, c)
	if bad != nil {
		return bad
	}
	if bad := x.touch(len(s.Parts), false); bad != nil {
		return bad
	}
	for _, p := range s.Parts {
		if bad := x.visitLock(x.find(false, p.Name)); bad != nil {
			return bad
		}
	}
	if i := slices.IndexFunc(x.Sets, s.claims); i >= 0 {
		return x.claim(x.Sets[i], s)
	}
	if bad := x.disclaim(s.Session, s.Parts...); bad != nil {
		return bad
	}
	switch {
	case x.ready(s):
		if x.shares(s) {
			return answer(wire.Code_BUSY)
		}
		reply := x.grant(s)
		x.granted(0, s.Parts...)
		return reply
	case c.Wait:
		return x.wait(s, c)
	}
	return x.refusal(s)
}

// wanted returns the set that a request is for, or the refusal.
func (x sets) wanted(t wire.Ticket, c *wire.LockSet) (*Set, *wire.Reply) {
	names := slices.Concat(c.Names, c.Shared)
	switch {
	case len(names) == 0:
		return nil, answer(wire.Code_INVALID)
	case len(names) > MaxSet:
		return nil, answer(wire.Code_TOO_LARGE)
	}
	s := &Set{Place: Place{Handle: c.Handle, Ticket: t}}
	for i, name := range names {
		if bad := checkName(name); bad != nil {
			return nil, bad
		}
		if slices.Contains(names[:i], name) {
			return nil, answer(wire.Code_INVALID)
		}
		s.Parts = append(s.Parts, Part{Name: name, Shared: i >= len(c.Names)})
	}
	var bad *wire.Reply
	if s.Label, bad = x.label(c.Label); bad != nil {
		return nil, bad
	}
	if s.End, bad = bounding(x).wanted(c.MaxHold, true); bad != nil {
		return nil, bad
	}
	if _, bad = x.live(c.Session); bad != nil {
		return nil, bad
	}
	s.Session = wire.ID(c.Session)
	return s, nil
}

// shares reports that a lock has as many shares as it may.
func (x sets) shares(s *Set) bool {
	return slices.ContainsFunc(s.Parts, func(p Part) bool {
		l := x.find(false, p.Name)
		return l != nil && p.Shared && len(l.Shares) >= MaxShares
	})
}

// grant makes a set of a request whose names are free.
func (x sets) grant(s *Set) *wire.Reply {
	s.End = bounding(x).begin(s.Place)
	s.Ticket, s.Since = s.Place.granted(), x.stamp()
	for i, p := range s.Parts {
		if p.Shared {
			x.Granted++
			s.Parts[i].number = x.Granted
		}
	}
	x.Granted++
	s.Fence = x.Granted
	reply := &wire.Reply{Code: wire.Code_OK, Fence: s.Fence, Holds: 1}
	for _, p := range s.Parts {
		l := x.existing(p.Name)
		of := Place{Session: s.Session, Handle: s.Handle, Label: s.Label, Since: s.Since, shared: p.Shared, set: s}
		if !p.Shared {
			l.Owner, l.Unclaimed, l.holds, l.Lingering, l.Fence = &of, false, 1, false, s.Fence
			continue
		}
		if len(l.Live()) == 0 {
			l.SharedFence = s.Fence
		}
		l.Shares = append(l.Shares, Share{Place: of, Number: p.number, Holds: 1})
		if reply.Set == nil {
			reply.Set = &wire.SetReply{}
		}
		reply.Set.Fences = append(reply.Set.Fences, l.SharedFence)
	}
	x.Sets = append(x.Sets, s)
	return s.state(reply, s.requested)
}

// existing returns the lock of that name, and adds one if there is none.
func (x sets) existing(name string) *Lock {
	if l := x.find(false, name); l != nil {
		return l
	}
	l := &Lock{Name: name}
	x.Locks = append(x.Locks, l)
	return l
}

func (x sets) unlock(c *wire.UnlockSet) *wire.Reply {
	if _, bad := x.live(c.Session); bad != nil {
		return bad
	}
	s := x.held(c.Session, c.Fence)
	if s == nil {
		return answer(wire.Code_NOT_HELD)
	}
	if bad := x.touch(len(s.Parts), true); bad != nil {
		return bad
	}
	defer x.traced(c.Trace)()
	return x.release(s, 0)
}

// held returns the set that the session holds under the fence, or nil.
func (x sets) held(session []byte, fence uint64) *Set {
	for _, s := range x.Sets {
		if s.Fence == fence && !s.Unclaimed && bytes.Equal(s.Session[:], session) {
			return s
		}
	}
	return nil
}

// release releases all names of a set, or starts their lock-delays; then each lock is served.
func (x sets) release(s *Set, until int64) *wire.Reply {
	x.Sets = slices.DeleteFunc(x.Sets, func(o *Set) bool { return o == s })
	for _, p := range s.Parts {
		l := x.find(false, p.Name)
		if !p.Shared {
			l.Owner, l.holds, l.Fence = nil, 0, 0
			if until > x.Now {
				l.until = until
			}
			continue
		}
		i := slices.IndexFunc(l.Shares, func(sh Share) bool { return sh.Number == p.number })
		if until > x.Now {
			l.Shares[i] = Share{Number: p.number, until: until}
		} else {
			l.Shares = slices.Delete(l.Shares, i, i+1)
		}
	}
	x.serveAll(s)
	return &wire.Reply{Code: wire.Code_OK, Fence: s.Fence}
}

// serveAll serves the locks of a set that was released, in the order of its parts. Where others share one, no set that waits
// gains by the end of this share: what made it ready is another name of the set, which is served as well.
func (x sets) serveAll(s *Set) {
	for _, p := range s.Parts {
		l := x.find(false, p.Name)
		if l == nil {
			continue
		}
		waits := len(l.Queue) > 0 && (sharing(x).due(l) || x.lateSession(l.Queue[0].Session) != nil)
		if !p.Shared || len(l.Shares) == 0 || waits {
			sharing(x).serve(l)
		}
	}
}

// ofSession returns the first set that a session holds, by fence; nil: none.
func (x sets) ofSession(id wire.ID) *Set {
	i := slices.IndexFunc(x.Sets, func(s *Set) bool { return s.Session == id })
	if i < 0 {
		return nil
	}
	return x.Sets[i]
}

func (x sets) releaseOf(d *dead) bool {
	s := x.ofSession(d.s.ID)
	if s != nil {
		x.quota -= len(s.Parts) - 1
		x.release(s, d.until)
	}
	return s != nil
}

// withdraw releases the set that a ticket has obtained.
func (x sets) withdraw(t wire.Ticket) *wire.Reply {
	for _, s := range x.Sets {
		if s.Ticket == t && !s.Unclaimed && x.lateSession(s.Session) == nil {
			if bad := x.touch(len(s.Parts), true); bad != nil {
				return bad
			}
			return x.release(s, 0)
		}
	}
	return nil
}
