package machine

import (
	"cmp"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// lock is a lock or an election. It exists only while it is held or delayed, or awaited;
// waiters queue for one of the two. Its owner is a handle of a session: two
// handles of one session exclude each other. One that is held shared has no owner.
type lock struct {
	key        string // durable; the name follows its first byte
	owner      *session
	handle     uint64
	holds      uint32
	lingering  bool
	slot       ordered.Slot
	fence      uint64
	ticket     ticket // of the waiter that the lock was granted to; see granted
	since      int64  // group time of the grant; 0: unknown
	delayUntil int64  // 0: no delay
	extra      *extra
	inSession  ordered.Link[lock]
}

// extra is what a lock without contention does not need. A million of those are
// held at once.
type extra struct {
	queue  ordered.List[waiter, waitersInQueue]
	leader *fact.Leader // of an election that is held
	label  string       // of the owner
	shared *phase
	end    *bound       // of the hold; nil: it does not end in time
	set    *set         // that the hold is of; nil: of the lock alone
	sets   *waitingSets // nil: none waits for the lock

	shortened bool // see shortened
}

func (l *lock) name() string { return l.key[1:] }

func (l *lock) isElection() bool { return l.key[0] == electionKind }

func (l *lock) isJob() bool { return l.key[0] == jobLockKind }

func (l *lock) ownedBy(s *session, handle uint64) bool {
	return l.owner == s && l.handle == handle && l.set() == nil && !l.unclaimed()
}

// unclaimed reports that the lock is held alone by an attached session, no handle of which has
// locked it yet.
func (l *lock) unclaimed() bool {
	return l.owner != nil && l.owner.claimable(l.fence) && l.set() == nil
}

func (l *lock) more() *extra {
	if l.extra == nil {
		l.extra = new(extra)
	}
	return l.extra
}

// head returns the first waiter, or nil.
func (l *lock) head() *waiter {
	if l.extra == nil {
		return nil
	}
	return l.extra.queue.First()
}

// lastExclusive returns the last waiter before a position that wants the lock for itself, or nil; 0: before the end of the
// queue. It counts down left for each waiter that it looks at.
func (l *lock) lastExclusive(position uint64, v *ordered.Visits, left *int) *waiter {
	if l.extra == nil || l.exclusives() == 0 {
		return nil
	}
	for w := l.extra.queue.Last(); w != nil; w = w.inQueue.Prev() {
		v.Count()
		if *left--; *left < 0 {
			return nil
		}
		if !w.shared && (position == 0 || w.position < position) {
			return w
		}
	}
	return nil
}

func (l *lock) waiters() int {
	if l.extra == nil {
		return 0
	}
	return l.extra.queue.Len
}

// waitingNames counts the waiters for the lock, and the names of the sets that wait for it.
func (l *lock) waitingNames() int {
	n := l.waiters()
	if ws := l.sets(); ws != nil {
		n += ws.names
	}
	return n
}

// set returns the set that holds the lock exclusively, or nil.
func (l *lock) set() *set {
	if l.extra == nil {
		return nil
	}
	return l.extra.set
}

// sets returns the sets that wait for the lock, or nil.
func (l *lock) sets() *waitingSets {
	if l.extra == nil {
		return nil
	}
	return l.extra.sets
}

// isIdle reports that there is no reason for the lock to exist.
func (l *lock) isIdle() bool {
	return l.owner == nil && l.delayUntil == 0 && l.head() == nil && !l.phase().held() && l.sets().len() == 0
}

func (l *lock) leader() *fact.Leader {
	if l.extra == nil {
		return nil
	}
	return l.extra.leader
}

// space holds the locks, or the elections.
type space struct {
	byName map[string]*lock
	index  ordered.Index[lock]
}

func newSpace(v *ordered.Visits) space {
	return space{make(map[string]*lock), ordered.NewIndex(v, (*lock).name, func(l *lock) *ordered.Slot { return &l.slot })}
}

func (s *space) add(l *lock) {
	s.byName[l.name()] = l
	s.index.Add(l)
}

func (s *space) remove(l *lock) {
	delete(s.byName, l.name())
	s.index.Remove(l)
}

func (m *Machine) space(election bool) *space {
	if election {
		return &m.elections
	}
	return &m.locks
}

// spaceIn is the space that the lock is in, or belongs in.
func (l *lock) spaceIn(m *Machine) *space {
	if l.isJob() {
		return &m.jobs.locks
	}
	return m.space(l.isElection())
}

func (m *Machine) lock(inc *incarnation, seq uint64, c *wire.Lock) *wire.Reply {
	if r := cmp.Or(m.checkName(c.Name), m.checkCandidate(c), m.checkLabel(c.Label), bounding{m}.check(c.MaxHold, !c.Election && !c.Lingering)); r != nil {
		return r
	}
	s, refusal := m.live(c.Session)
	if s == nil {
		return refusal
	}
	l, refusal := m.lockNow(m.space(c.Election), c.Name)
	if s.attached != 0 && l != nil && c.Fence == 0 && c.Share == 0 {
		l, refusal = setting{m}.disclaimSets(l, s)
	}
	if refusal != nil {
		return refusal
	}
	mine := l != nil && l.ownedBy(s, c.Handle)
	w := &waiter{
		lock: l, session: s, handle: c.Handle, value: c.Value, lingering: m.mayLinger(c), label: m.labelOf(c), ticket: ticket{inc, seq},
		maxHold: bounding{m}.maxHold(c.MaxHold),
	}
	if x := (sharing{m}); c.Shared && x.hasShared() {
		w.shared = true
		return x.request(w, c)
	}
	switch {
	case c.Fence != 0 && !(mine && l.fence == c.Fence):
		return m.reply(wire.Code_OWNERSHIP_LOST)
	case mine && c.Reentrant:
		return m.reenter(l, c.Limit)
	case l != nil && l.owner == s && l.unclaimed():
		return m.claim(l, w)
	case l != nil && s.attached != 0:
		if l, refusal = (sharing{m}).disclaim(l, s); refusal != nil {
			return refusal
		}
		w.lock = l
	}
	if l == nil || c.Wait || l.isFree() {
		return m.newPlace(w, c)
	}
	return sharing{m}.refuseLock(w)
}

// lockNow returns the lock, or nil. If its owner has ended, it is released first; if the sessions
// of the first waiters have, these do not stand before others any more. A refusal says that the entry has released enough sets.
func (m *Machine) lockNow(in *space, name string) (*lock, *wire.Reply) {
	l := in.byName[name]
	if l == nil {
		return nil, nil
	}
	switch w := l.head(); {
	case l.owner != nil && l.owner.dead() && l.set() != nil:
		if r := (setting{m}).mayTouch(l.set().len(), false); r != nil {
			return nil, r
		}
		setting{m}.release(l.set(), l.owner.delayUntil())
	case l.owner != nil && l.owner.dead():
		m.releaseLock(l, l.owner.delayUntil())
	case l.owner == nil && w != nil && w.session.dead():
		sharing{m}.serveBehind(l, w.position, w.position)
	default:
		return l, nil
	}
	return in.byName[name], nil
}

// holder describes the owner of a lock that is held, or of its oldest share.
func (l *lock) holder() *wire.Holder {
	if l.owner == nil {
		return l.phase().first().holder()
	}
	return &wire.Holder{Session: l.owner.id[:], Member: l.owner.member, Handle: l.handle, Fence: l.fence}
}

func (m *Machine) locked(by *wire.Holder) *wire.Reply {
	r := m.reply(wire.Code_LOCKED)
	r.Holder = by
	return r
}

// isFree reports whether a request that is not queued is granted the lock exclusively: only sets wait for it, and it is
// not reserved for one.
func (l *lock) isFree() bool {
	return l.owner == nil && l.delayUntil == 0 && l.head() == nil && !l.phase().held() && l.sets().reservation(false, 0) == nil
}

// newPlace grants a lock that is free, or queues for one that is not.
func (m *Machine) newPlace(w *waiter, c *wire.Lock) *wire.Reply {
	if r := m.mayHaveMore(w.session); r != nil {
		return r
	}
	l := w.lock
	if l != nil && !l.isFree() {
		if r := cmp.Or(m.mayJoin(w), deadlocks{m}.mayQueue(w, c.RefuseDeadlock)); r != nil {
			return r
		}
		return m.enqueue(w)
	}
	if m.fences+w.block() > maxFences {
		return m.exhausted()
	}
	if l == nil {
		l = &lock{key: lockKey(c.Election, c.Name)}
		m.space(c.Election).add(l)
	}
	r := m.grant(l, w)
	setting{m}.granted(l, w, nil)
	return r
}

func (m *Machine) unlock(c *wire.Unlock) *wire.Reply {
	if r := m.checkName(c.Name); r != nil {
		return r
	}
	s, refusal := m.live(c.Session)
	if s == nil {
		return refusal
	}
	if x := (sharing{m}); c.Share != 0 && x.hasShared() {
		return x.unlock(s, c)
	}
	l, refusal := m.holdOf(s, m.space(c.Election), c.Name, c.Handle, c.Fence)
	if l == nil {
		return refusal
	}
	m.cause = m.traceOf(c.Trace)
	r := m.releaseHold(l)
	m.cause = nil
	return r
}

// holdOf returns the lock that the handle holds under the fence, or the refusal
// of a command by its holder.
func (m *Machine) holdOf(s *session, in *space, name string, handle, fence uint64) (*lock, *wire.Reply) {
	l := in.byName[name]
	switch {
	case l == nil || !l.ownedBy(s, handle):
		return nil, m.reply(wire.Code_NOT_HELD)
	case l.fence != fence:
		return nil, m.reply(wire.Code_OWNERSHIP_LOST)
	}
	return l, nil
}

// releaseHold releases one hold of the owner; with the last the lock goes to the
// next waiter.
func (m *Machine) releaseHold(l *lock) *wire.Reply {
	l.holds--
	r := m.holding(l)
	if l.holds == 0 {
		m.releaseLock(l, 0)
	} else {
		m.dirty.put(l.key, l)
	}
	return r
}

// releaseLock takes the lock from its owner. It goes to the head of its queue, at
// once or when its lock-delay ends.
func (m *Machine) releaseLock(l *lock, until int64) {
	if l.isJob() {
		until = jobRuns{m}.ended(l, until)
	}
	sharing{m}.disown(l)
	if until > m.now {
		l.delayUntil = until
		m.beginDelay(l)
		m.dirty.put(l.key, l)
	} else {
		m.grantHead(l)
	}
	if l.isElection() && l.owner == nil {
		m.leads(l)
	}
}

func (l *lock) ends() int64  { return l.delayUntil }
func (l *lock) place() place { return place{kind: l.key[0], name: l.name()} }

// over ends the lock-delay.
func (l *lock) over(m *Machine) {
	l.delayUntil = 0
	m.grantHead(l)
}

// bound returns the end of the present hold; nil: it has none.
func (l *lock) bound() *bound {
	switch {
	case l.extra == nil:
		return nil
	case l.extra.set != nil:
		return l.extra.set.end
	}
	return l.extra.end
}

func (l *lock) setBound(b *bound) { l.more().end = b }

func (l *lock) touch(d *dirty) { d.put(l.key, l) }

func (l *lock) lose(m *Machine, until int64) { m.releaseLock(l, until) }

// voidTicket makes the hold independent of its ticket.
func (m *Machine) voidTicket(l *lock) {
	if by := l.ticket.by; by != nil {
		by.holds.Delete(l)
		l.ticket = ticket{}
		m.forget(by)
	}
}
