package reference

import (
	"github.com/conclave-go/conclave/internal/wire"
)

// taken lists the names that are not free for a set that is about to be queued.
func (x sets) taken(s *Set) (all []*wire.Taken) {
	for i, p := range s.Parts {
		if !x.free(s, p) {
			l := x.existing(p.Name)
			all = append(all, &wire.Taken{Name: uint32(i), Holder: x.obstacle(s, p, l), Delay: x.delay(p, l)})
		}
	}
	return all
}

// obstacle describes what keeps a set from a name.
func (x sets) obstacle(s *Set, p Part, l *Lock) *wire.Holder {
	switch reserved := x.reserved(s.arrival, p); {
	case l.Owner != nil:
		return x.holder(l)
	case !p.Shared && len(l.Live()) > 0:
		return sharing(x).oldest(l)
	case len(l.Queue) > 0:
		return x.waits(l.Queue[0])
	case reserved != nil:
		return x.waits(reserved.Place)
	}
	return nil
}

// waits describes a request that waits; nil: its session has ended.
func (x sets) waits(p Place) *wire.Holder {
	if x.lateSession(p.Session) != nil {
		return nil
	}
	return &wire.Holder{Session: p.Session[:], Member: x.session(p.Session[:]).Member, Handle: p.Handle, Waiting: true}
}

// delay returns what is left of the lock-delay that keeps a set from a name.
func (x sets) delay(p Part, l *Lock) int64 {
	until := l.until
	for _, sh := range l.Shares {
		if !p.Shared {
			until = max(until, sh.until)
		}
	}
	return max(0, until-x.Now)
}

// refusal is what a set gets that does not wait.
func (x sets) refusal(s *Set) *wire.Reply {
	reply := &wire.Reply{Code: wire.Code_LOCK_DELAY, Set: &wire.SetReply{Taken: x.taken(s)}}
	for _, taken := range reply.Set.Taken {
		p := s.Parts[taken.Name]
		l := x.find(false, p.Name)
		if l.Owner != nil || !p.Shared && len(l.Live()) > 0 || len(l.Queue) > 0 || x.reserved(s.arrival, p) != nil {
			reply.Code = wire.Code_LOCKED
		}
		reply.Delay = max(reply.Delay, taken.Delay)
		if reply.Holder == nil {
			reply.Holder = taken.Holder
		}
		x.recallOwner(l)
		if !p.Shared {
			sharing(x).recallShares(l)
		}
	}
	if reply.Code == wire.Code_LOCKED {
		reply.Delay = 0
	}
	return reply
}
