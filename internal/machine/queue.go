package machine

import (
	"cmp"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// waiter is a place in the queue for a lock, an election or a semaphore. Waiters
// are served in the order of their positions, which is the order of the log.
type waiter struct {
	lock      *lock      // or the election
	semaphore *semaphore // exactly one of the two
	session   *session
	handle    uint64 // of a lock
	permits   uint32 // of a semaphore
	lingering bool   // of a lock
	shared    bool   // of a lock: it waits for a share
	value     []byte // of a candidate
	label     string // of the handle of a lock or an election
	since     int64  // group time of the request for those, and of one with maxHold; 0: unknown
	maxHold   int64  // so long after its grant the hold ends; 0: not by time
	terms     *terms // of a run of a job; else nil
	ticket    ticket // that the grant answers
	position  uint64 // 0: not queued

	inQueue   ordered.Link[waiter]
	inSession ordered.Link[waiter]
}

// request is what waits for locks or permits, or is about to: a waiter or a set.
type request struct {
	waiter *waiter
	set    *set // nil: the waiter
}

func (r request) position() uint64 {
	if r.set != nil {
		return r.set.position
	}
	return r.waiter.position
}

func (r request) session() *session {
	if r.set != nil {
		return r.set.session
	}
	return r.waiter.session
}

func byPosition(a, b *waiter) int { return cmp.Compare(a.position, b.position) }

// granted is the ticket by which a grant to w is found: that of a request that was
// queued. One that is granted at once has the fence in its first outcome, and is
// released by that.
func (w *waiter) granted() ticket {
	if w.position == 0 {
		return ticket{}
	}
	return w.ticket
}

// of is the durable key of the lock, election or semaphore.
func (w *waiter) of() string {
	if w.semaphore != nil {
		return w.semaphore.key
	}
	return w.lock.key
}

func (w *waiter) queue() *ordered.List[waiter, waitersInQueue] {
	if w.semaphore != nil {
		return &w.semaphore.queue
	}
	return &w.lock.more().queue
}

// holder describes the present holder, or the exclusive request before a shared one; nil while only
// a lock-delay is in the way.
func (w *waiter) holder() *wire.Holder {
	switch {
	case w.semaphore != nil:
		return w.semaphore.holder()
	case w.shared:
		return w.lock.obstacle()
	}
	if p := w.lock.sets().reservation(false, w.position); p != nil && w.lock.owner == nil && !w.lock.phase().isLive() {
		return p.set.holder()
	}
	return w.lock.holder()
}

// mayJoin refuses a place in a queue that is too long, and one more of a process that has
// too many.
func (m *Machine) mayJoin(w *waiter) *wire.Reply {
	switch {
	case w.queue().Len >= MaxWaiters, w.lock != nil && w.lock.waitingNames() >= MaxWaiters:
		return m.refuse(wire.Code_BUSY, "the queue is full (16384 waiters)")
	case w.ticket.by.places() >= MaxQueued:
		return m.refuse(wire.Code_BUSY, waitsTooMuch)
	}
	return nil
}

// enqueue gives the next place to a request. Only here is it copied to the heap: most are
// granted or refused at once.
func (m *Machine) enqueue(request *waiter) *wire.Reply {
	w := new(waiter)
	*w = *request
	m.positions++
	w.position = m.positions
	m.candidates += len(w.value)
	m.labels += len(w.label)
	if w.lock != nil || w.maxHold > 0 {
		w.since = m.stamp()
	}
	if w.lock != nil {
		if w.shared {
			sharing{m}.sharedBy(w.lock)
		}
		m.recall(w)
	}
	w.join()
	m.waiting++
	m.dirty.create(w.key(), w)
	r := m.reply(wire.Code_QUEUED)
	r.Holder, r.Position = w.holder(), uint32(w.queue().Len)
	if w.lock != nil {
		r.Position += uint32(w.lock.sets().len())
	}
	if m.levels.agreed >= wire.LevelSlots {
		r.Holds = w.permits
	}
	return r
}

// join links the waiter into the queue, its session and its incarnation.
func (w *waiter) join() {
	w.queue().Push(w)
	if w.semaphore != nil {
		w.semaphore.bySize.ReplaceOrInsert(w)
	}
	if w.shared {
		w.lock.phase().waiting++
	}
	w.session.waiters.Push(w)
	w.ticket.by.waiters.ReplaceOrInsert(w)
}

func (m *Machine) dequeue(w *waiter) {
	if w.semaphore != nil {
		w.semaphore.bySize.Delete(w)
	} else if p := w.lock.phase(); p != nil {
		if p.at != 0 { // what serves the queue adds it again
			m.portions.Remove(w.lock)
		}
		if w.shared {
			p.waiting--
		}
	}
	w.queue().Remove(w)
	w.session.waiters.Remove(w)
	w.ticket.by.waiters.Delete(w)
	m.forget(w.ticket.by)
	m.waiting--
	m.candidates -= len(w.value)
	m.labels -= len(w.label)
	m.dirty.drop(w.key())
}

// shortened collects what has lost waiters: the next one for a semaphore may fit now, and those
// for shares of a lock may have waited for the exclusive request that stood before them.
type shortened struct {
	semaphores []*semaphore
	locks      []*lock
}

func (s *shortened) by(w *waiter) {
	if w.semaphore != nil {
		if !w.semaphore.shortened {
			w.semaphore.shortened = true
			s.semaphores = append(s.semaphores, w.semaphore)
		}
	} else {
		s.add(w.lock)
	}
}

func (s *shortened) add(l *lock) {
	if more := l.more(); !more.shortened {
		more.shortened = true
		s.locks = append(s.locks, l)
	}
}

func (m *Machine) serveAll(shortened shortened) {
	for _, s := range shortened.semaphores {
		s.shortened = false
		m.serve(s)
	}
	for _, l := range shortened.locks {
		l.extra.shortened = false
		if l.spaceIn(m).byName[l.name()] == l {
			sharing{m}.serve(l)
		}
	}
}

// dismiss removes one waiter from its queue, with code as its last outcome.
func (m *Machine) dismiss(w *waiter, code wire.Code) {
	head := w.queue().First()
	m.dequeue(w)
	m.settle(w.ticket, m.reply(code))
	if w.semaphore != nil {
		m.serve(w.semaphore)
	} else {
		sharing{m}.serveBehind(w.lock, head.position, head.position) // also without shares: a set that had the lock reserved may have left before w
	}
}

// dismissDead removes the first waiter of a queue if its session has ended: what
// serves a queue calls it, since nothing is granted to an ended session.
func (m *Machine) dismissDead(w *waiter) bool {
	if !w.session.dead() {
		return false
	}
	m.left--
	m.dequeue(w)
	m.settle(w.ticket, m.reply(wire.Code_SESSION_EXPIRED))
	return true
}
