package reference

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// Holds that end in time.

// bounding is the rules of those.
type bounding struct{ *Model }

// hold is the hold of a lock, a share or permits that ends in time.
type hold struct {
	*End
	key     string // durable
	session wire.ID
	lose    func(until int64)
	names   int
}

// End is when a hold ends by its MaxHold, and what its request needs for that.
type End struct {
	maxHold   int64
	ends      int64 // 0: not by time
	requested int64
}

// wanted returns the end of a request, or the refusal.
func (x bounding) wanted(maxHold int64, possible bool) (End, *wire.Reply) {
	switch {
	case x.Level < wire.LevelMaxHold || maxHold == 0:
		return End{}, nil
	case !possible || maxHold < MinMaxHold || maxHold > MaxMaxHold:
		return End{}, answer(wire.Code_INVALID)
	}
	return End{maxHold: maxHold}, nil
}

// options returns the label and the end that a request wants, or the refusal.
func (x bounding) options(c *wire.Lock) (string, End, *wire.Reply) {
	label, bad := x.label(c.Label)
	if bad != nil {
		return "", End{}, bad
	}
	end, bad := x.wanted(c.MaxHold, !c.Election && !c.Lingering)
	return label, end, bad
}

// begin begins the time of a request that is granted.
func (x bounding) begin(p Place) End {
	e := End{maxHold: p.maxHold}
	if e.maxHold == 0 {
		return e
	}
	e.ends, e.requested = later(x.Now, e.maxHold), x.Now
	if p.arrival != 0 {
		e.requested = p.Since
	}
	return e
}

// state adds an end to the reply to a request that was applied at that time.
func (e End) state(reply *wire.Reply, applied int64) *wire.Reply {
	if e.ends != 0 {
		reply.Allowed, reply.Now = max(0, e.ends-applied), applied
	}
	return reply
}

// Over reports whether the time of a hold has passed.
func (e End) Over(now int64) bool { return e.ends != 0 && e.ends <= now }

// holds returns all holds that end in time.
func (x bounding) holds() (all []hold) {
	until := func(s wire.ID) int64 {
		if d := x.lateSession(s); d != nil {
			return d.until
		}
		return later(x.Now, x.session(s[:]).delay)
	}
	add := func(key string, e *End, s wire.ID, lose func(until int64)) {
		if e.ends != 0 {
			all = append(all, hold{e, key, s, func(int64) { lose(until(s)) }, 1})
		}
	}
	for _, l := range x.Locks {
		if l.Owner != nil {
			add(l.key(), &l.Owner.End, l.Owner.Session, func(until int64) { x.free(l, until) })
		}
		for i, sh := range l.Shares {
			if sh.until == 0 {
				add("h"+l.Name+"\x00"+string(binary.BigEndian.AppendUint64(nil, sh.Number)), &l.Shares[i].End, sh.Session,
					func(until int64) { sharing(x).lose(l, sh.Number, until) })
			}
		}
	}
	for _, s := range x.Sets {
		add("g"+string(binary.BigEndian.AppendUint64(nil, s.Fence)), &s.End, s.Session, func(until int64) { sets(x).release(s, until) })
		if s.ends != 0 {
			all[len(all)-1].names = len(s.Parts)
		}
	}
	for _, s := range x.Semaphores {
		for i, p := range s.Permits {
			if p.until == 0 {
				add("p"+s.Name+"\x00"+string(binary.BigEndian.AppendUint64(nil, p.Fence)), &s.Permits[i].End, p.Session,
					func(until int64) { x.putBack(s, p.Fence, until) })
			}
		}
	}
	return all
}

// end ends the first hold whose time has passed.
func (x bounding) end() bool {
	at, key, first := int64(math.MaxInt64), "", hold{}
	for _, h := range x.holds() {
		if h.ends <= x.Now && (first.End == nil || h.ends < at || h.ends == at && h.key < key) {
			at, key, first = h.ends, h.key, h
		}
	}
	if first.End != nil {
		x.quota -= first.names
		first.lose(0)
	}
	return first.End != nil
}

func (x bounding) renewal() *wire.Reply {
	reply := answer(wire.Code_OK)
	if x.Level >= wire.LevelMaxHold {
		reply.Now = x.Now
	}
	return reply
}

func (x bounding) command(c *wire.Command) *wire.Reply {
	if op := c.GetExtend(); op != nil && x.Level >= wire.LevelMaxHold {
		return x.extend(op)
	}
	return answer(wire.Code_INVALID)
}

func (x bounding) extend(c *wire.Extend) *wire.Reply {
	if bad := checkName(c.Name); bad != nil && !c.Set {
		return bad
	}
	if _, bad := x.wanted(c.MaxHold, c.Set || c.Space == wire.Space_LOCK || c.Space == wire.Space_SEMAPHORE); bad != nil {
		return bad
	}
	if _, bad := x.live(c.Session); bad != nil {
		return bad
	}
	e, reply := x.named(c)
	switch {
	case e == nil:
		return reply
	case c.MaxHold == 0 || e.ends == 0:
		return answer(wire.Code_INVALID)
	}
	e.ends = later(x.Now, c.MaxHold)
	return e.state(reply, x.Now)
}

// named returns the end of the hold that an Extend names, with the reply about the hold.
func (x bounding) named(c *wire.Extend) (*End, *wire.Reply) {
	if c.Set {
		s := sets(x).held(c.Session, c.Fence)
		if s == nil {
			return nil, answer(wire.Code_NOT_HELD)
		}
		return &s.End, &wire.Reply{Code: wire.Code_OK, Fence: s.Fence, Holds: 1}
	}
	if c.Space == wire.Space_SEMAPHORE {
		s := x.Semaphore(c.Name)
		if s == nil {
			return nil, answer(wire.Code_NOT_HELD)
		}
		i := slices.IndexFunc(s.Permits, func(p Permit) bool {
			return p.Fence == c.Fence && p.until == 0 && !p.Unclaimed && string(p.Session[:]) == string(c.Session)
		})
		if i < 0 {
			return nil, answer(wire.Code_NOT_HELD)
		}
		return &s.Permits[i].End, &wire.Reply{Code: wire.Code_OK, Fence: c.Fence, Holds: s.Permits[i].Permits}
	}
	l := x.find(false, c.Name)
	if c.Share != 0 {
		i := l.share(c.Session, c.Share)
		if i < 0 {
			return nil, answer(wire.Code_NOT_HELD)
		}
		return &l.Shares[i].End, l.stated(i)
	}
	switch {
	case !l.heldBy(c.Session, c.Handle):
		return nil, answer(wire.Code_NOT_HELD)
	case l.Fence != c.Fence:
		return nil, answer(wire.Code_OWNERSHIP_LOST)
	}
	return &l.Owner.End, &wire.Reply{Code: wire.Code_OK, Fence: l.Fence, Holds: l.holds}
}

// Ending returns an Extend of a hold that ends in time, for each.
func Ending(r *Model) (all []*wire.Extend) {
	for _, l := range r.Locks {
		if o := l.Owner; o != nil && o.ends != 0 {
			all = append(all, &wire.Extend{Name: l.Name, Session: o.Session[:], Handle: o.Handle, Fence: l.Fence})
		}
		for _, sh := range l.Live() {
			if sh.ends != 0 {
				all = append(all, &wire.Extend{Name: l.Name, Session: sh.Session[:], Share: sh.Number})
			}
		}
	}
	for _, s := range r.Sets {
		if s.ends != 0 {
			all = append(all, &wire.Extend{Set: true, Session: s.Session[:], Fence: s.Fence})
		}
	}
	for _, s := range r.Semaphores {
		for _, p := range s.Permits {
			if p.until == 0 && p.ends != 0 {
				all = append(all, &wire.Extend{Space: wire.Space_SEMAPHORE, Name: s.Name, Session: p.Session[:], Fence: p.Fence})
			}
		}
	}
	return all
}
