package machine

import (
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// A lingering lock is kept by its owner, a process, for a tenure. In it the process grants
// the lock to its own callers, each time with the next fence of a block that was reserved for
// the tenure. As the counter of the fences is behind the block, each later grant of the
// group has a larger one. When another owner comes, the process is recalled.

const (
	firstBlock = 16    // fences, reserved with the grant: most tenures see few grants
	MaxBlock   = 4_096 // fences of one Refill; a process that asks without need, and for nothing else, uses up an epoch in days at the earliest: by 2^36 of them, each of which takes a microsecond or more on every member
)

// mayLinger reports whether the request is for a tenure.
func (m *Machine) mayLinger(c *wire.Lock) bool {
	return c.Lingering && !c.Election && m.levels.agreed >= wire.LevelLinger
}

// block is how many fences the grant of w takes.
func (w *waiter) block() uint64 {
	if w.lingering {
		return firstBlock
	}
	return 1
}

// recall recalls the last in line, behind which next is about to queue: the last waiter, or the
// owner if there is none. So a tenure is recalled when the first one queues
// behind it, and admits no newcomer that came later, even before it begins. Shared tenures do
// not keep each other from anything.
func (m *Machine) recall(next *waiter) {
	l := next.lock
	var w *waiter
	if l.extra != nil {
		w = l.extra.queue.Last()
	}
	switch {
	case w == nil:
		if m.recallOwner(l); !next.shared {
			sharing{m}.recallShares(l)
		}
	case !w.shared:
		if w.lingering && !w.session.dead() {
			m.recalls = append(m.recalls, recallOf(w.session, l, w.handle))
		}
	case !next.shared:
		sharing{m}.recallTail(l)
	}
}

func (m *Machine) recallOwner(l *lock) {
	if l.lingering && !l.owner.dead() {
		m.recalls = append(m.recalls, recallOf(l.owner, l, l.handle))
	}
}

func recallOf(s *session, l *lock, handle uint64) fact.Recall {
	return fact.Recall{Session: s.id, Incarnation: s.process(), Lock: l.name(), Handle: handle}
}

// recalled is how far the entry at an index has recalled shares, by number, and waiters for
// shares, by position: it recalls none twice, however many exclusive requests it has.
type recalled struct{ index, number, position uint64 }

// recallShares recalls the shares that linger, as an exclusive request comes.
func (x sharing) recallShares(l *lock) {
	p := l.phase()
	if p == nil {
		return
	}
	mark := p.recalledBy(x.index)
	var first *share
	for sh := p.lingering.Last(); sh != nil && sh.number > mark.number; sh = sh.inPhase.Prev() {
		first = sh
	}
	for sh := first; sh != nil; sh = sh.inPhase.Next() {
		mark.number = sh.number
		if !sh.owner.dead() {
			x.recallShare(sh)
		}
	}
}

func (x sharing) recallShare(sh *share) {
	r := recallOf(sh.owner, sh.lock, sh.handle)
	r.Shared, r.Share = true, sh.number
	x.recalls = append(x.recalls, r)
}

// recallClaimed recalls the share with that number, which has been claimed, if exclusive requests
// wait: they have recalled the former hold, and all other shares.
func (x sharing) recallClaimed(l *lock, number uint64) {
	if ws := l.sets(); l.exclusives() == 0 && (ws == nil || ws.exclusive.Len == 0) {
		return
	}
	if sh, _ := l.phase().live.Get(&share{number: number}); sh.lingering {
		x.recallShare(sh)
	}
}

// recallTail recalls the waiters for shares at the end of the queue, behind which an exclusive
// request queues. If no other exclusive request waits, the shares too: the waiters join their phase,
// and some may have been granted since the entry has recalled the waiters.
func (x sharing) recallTail(l *lock) {
	mark := l.phase().recalledBy(x.index)
	var first *waiter
	w := l.extra.queue.Last()
	for ; w != nil && w.shared && w.position > mark.position; w = w.inQueue.Prev() {
		first = w
	}
	if l.exclusives() == 0 {
		x.recallShares(l)
	}
	for w := first; w != nil; w = w.inQueue.Next() {
		mark.position = w.position
		if w.lingering && !w.session.dead() {
			r := recallOf(w.session, l, w.handle)
			r.Shared = true
			x.recalls = append(x.recalls, r)
		}
	}
}

// recalledBy returns how far the entry has recalled.
func (p *phase) recalledBy(index uint64) *recalled {
	if p.recalled.index != index {
		p.recalled = recalled{index: index}
	}
	return &p.recalled
}

// refill reserves another block of fences for a tenure.
func (m *Machine) refill(c *wire.Refill) *wire.Reply {
	if r := m.checkName(c.Name); r != nil {
		return r
	}
	s, refusal := m.live(c.Session)
	if s == nil {
		return refusal
	}
	l, refusal := m.holdOf(s, &m.locks, c.Name, c.Handle, c.Fence)
	switch n := uint64(min(c.Fences, MaxBlock)); {
	case l == nil:
		return refusal
	case !l.lingering:
		return m.refuse(wire.Code_INVALID, "the lock does not linger")
	case n == 0:
		return m.refuse(wire.Code_INVALID, "the block is empty: want 1 to 4096 fences")
	case m.fences+n > maxFences:
		return m.exhausted()
	default:
		r := m.reply(wire.Code_OK)
		r.Fence, r.Block = m.nextFences(n), uint32(n)
		return r
	}
}
