package machine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// audit checks what must be true of any machine between two entries.
func audit(m *Machine) error {
	a := &auditor{m: m, fences: map[uint64]bool{}, phases: map[uint64]int{}, numbers: map[uint64]int{}}
	for _, space := range []space{m.locks, m.elections, m.jobs.locks} {
		for name, l := range space.byName {
			a.lock(name, l)
		}
		auditIndex(a, space.byName, space.index)
	}
	for name, s := range m.semaphores.byName {
		a.semaphore(name, s)
	}
	auditIndex(a, m.semaphores.byName, m.semaphores.index)
	if err := m.semaphores.numbers.Check(a.former); err != nil {
		a.fail("%v", err)
	}
	a.entries()
	a.members()
	a.incarnations()
	a.standalone()
	a.clients()
	a.sessions()
	a.sets()
	a.jobs()
	a.shardSets()
	if a.holds != 0 || a.shares != 0 || a.permits != 0 || a.waiters != 0 || a.waiting != 0 || a.bound != 0 || a.locked != 0 || a.tickets != 0 || a.waitingSets != 0 {
		a.fail("the two sides of a relation differ: %+v", *a)
	}
	a.belongings()
	a.portions()
	a.ends()
	if a.delayed+len(m.keys.delays) != m.delays.Len() {
		a.fail("%d delays, and %d are kept", a.delayed+len(m.keys.delays), m.delays.Len())
	}
	return errors.Join(a.errs...)
}

// auditor counts both sides of each relation: up on one, down on the other.
type auditor struct {
	m      *Machine
	fences map[uint64]bool
	errs   []error

	holds, shares, permits, waiters, waiting, bound, locked int
	delayed, resized, tickets, counted, waitingSets         int

	phases  map[uint64]int // by fence; a set begins several with one
	numbers map[uint64]int // of shares
	former  int            // numbers that are remembered
}

func (a *auditor) fail(format string, args ...any) {
	a.errs = append(a.errs, fmt.Errorf(format, args...))
}

func (a *auditor) fence(fence uint64) {
	if a.fences[fence] || fence > a.m.fence() {
		a.fail("the fence %d is held twice, or was not given out", fence)
	}
	a.fences[fence] = true
}

func (a *auditor) lock(name string, l *lock) {
	switch {
	case l.name() != name:
		a.fail("lock %q is kept under %q", l.name(), name)
	case l.owner == nil && l.delayUntil == 0 && !l.phase().held() && !l.awaitsPortion() && l.sets().len() == 0:
		a.fail("lock %q is idle with %d waiting", name, l.waiters())
	case l.owner != nil && (l.delayUntil != 0 || l.holds == 0 || a.m.sessions[l.owner.id] != l.owner):
		a.fail("lock %q has an owner that cannot own it", name)
	}
	if t := l.ticket; t != (ticket{}) {
		if l.owner == nil || heldBy(t) != l || !a.names(t, true) {
			a.fail("lock %q is not found by its ticket %d", name, t.seq)
		}
		a.tickets++
	}
	if s := l.set(); s != nil {
		if s.session != l.owner || l.ticket != (ticket{}) || a.m.sets.byFence[s.fence] != s {
			a.fail("lock %q has a set that cannot own it", name)
		}
	} else if l.owner != nil {
		a.fence(l.fence)
		a.holds++
	} else if l.delayUntil != 0 {
		a.delayed++
	}
	a.phase(l)
	a.queue(l.head(), func(w *waiter) bool { return w.lock == l && w.semaphore == nil && (w.terms != nil) == l.isJob() })
}

// auditIndex checks that the index lists exactly the objects found by name.
func auditIndex[T any](a *auditor, byName map[string]*T, x ordered.Index[T]) {
	if err := x.Check(byName); err != nil {
		a.fail("%v", err)
	}
}

func (a *auditor) semaphore(name string, s *semaphore) {
	taken, delayed, held := int64(0), int64(0), 0
	for _, p := range s.all() {
		a.fence(p.fence)
		taken += int64(p.n)
		if p.owner != nil {
			a.permits++
			held++
			if p.ticket != (ticket{}) {
				a.tickets++
			}
		} else {
			delayed += int64(p.n)
			a.delayed++
		}
		if (p.owner == nil) != (p.delayUntil != 0) || p.owner != nil && a.m.sessions[p.owner.id] != p.owner ||
			p.ticket != (ticket{}) && (permitOf(p.ticket) != p || !a.names(p.ticket, true)) {
			a.fail("semaphore %q: permit %d has no valid owner", name, p.fence)
		}
	}
	a.slots(name, s)
	head := s.queue.First()
	switch {
	case s.name() != name || s.taken != taken || s.delayed != delayed:
		a.fail("semaphore %q counts %d taken and %d delayed, and has %d and %d", name, s.taken, s.delayed, taken, delayed)
	case s.held.Len() != held:
		a.fail("semaphore %q finds %d acquisitions by fence, and %d are held", name, s.held.Len(), held)
	case head != nil && int64(head.permits) <= int64(s.limit)-taken:
		a.fail("semaphore %q: the head waits for what is free", name)
	case taken == 0 && !s.resized:
		a.fail("semaphore %q is idle and still kept", name)
	}
	if s.resized {
		a.resized++
	}
	a.queue(s.queue.First(), func(w *waiter) bool { return w.semaphore == s && w.lock == nil && w.permits <= s.limit })
}

func (a *auditor) queue(first *waiter, fits func(*waiter) bool) {
	last := uint64(0)
	for w := first; w != nil; w = w.inQueue.Next() {
		if !fits(w) || w.position <= last || waiterOf(w.ticket) != w || !a.names(w.ticket, w.session.dead()) || a.m.sessions[w.session.id] != w.session {
			a.fail("a queue is broken at %d", w.position)
		}
		last = w.position
		a.waiters++
	}
}

func (a *auditor) entries() {
	size, modified := 0, map[uint64]bool{}
	for _, e := range keysOf(a.m, "") {
		if !e.Session.IsZero() && sessionOf(a.m, e.Session) == nil {
			a.fail("key %q shows an ended session", e.Key)
		}
	}
	for _, e := range a.m.allKeys() {
		size += len(e.Key) + len(e.Value)
		if e.CreateIndex == 0 || e.CreateIndex > e.ModifyIndex || e.ModifyIndex > a.m.keys.changes || modified[e.ModifyIndex] {
			a.fail("key %q: its indexes are impossible: %s", e.Key, printFields(e))
		}
		modified[e.ModifyIndex] = true
		if e.Session.IsZero() {
			continue
		}
		a.locked++
		s := a.m.sessions[e.Session]
		if s == nil || e.LockIndex == 0 || a.m.keys.delays[e.Key] != nil {
			a.fail("key %q is locked by a dead session, or under a delay", e.Key)
		} else if s.keys == nil || !s.keys.Has(e.Key) {
			a.fail("key %q: its session does not know that it is locked", e.Key)
		}
	}
	if size != a.m.keys.bytes {
		a.fail("the keys have %d bytes, and count %d", size, a.m.keys.bytes)
	}
	if a.resized != a.m.resized {
		a.fail("%d semaphores are resized, and %d are counted", a.resized, a.m.resized)
	}
}

func (a *auditor) members() {
	for id, k := range a.m.members {
		if k.removed || a.m.former.byID[id] != nil || k.crashed && (!k.isRegistered() || a.m.levels.agreed < wire.LevelProcess) {
			a.fail("member %d is no member, or its process has crashed and there was none", id)
		}
		for _, c := range k.builtIn(a.m.levels) {
			if a.m.checks.Has(c) != k.isRegistered() {
				a.fail("member %d: its built-in check %q is wrong", id, c.name)
			}
		}
		forClients, standalone := 0, 0
		for _, c := range k.checks {
			if c.forClient {
				forClients++
			}
			if found, _ := a.m.checks.Get(c); found != c {
				a.fail("member %d: check %q is not listed", id, c.name)
			}
		}
		for s := range k.sessions.All(new(ordered.Visits)) {
			if s.standalone {
				standalone++
			}
		}
		if forClients != k.forClients || standalone != k.standalone {
			a.fail("member %d counts %d checks for clients and %d standalone sessions, and has %d and %d", id, k.forClients, k.standalone, forClients, standalone)
		}
	}
	var removed []uint64
	unstarted := 0
	for id, k := range a.m.former.byID {
		if removed = append(removed, id); !k.isRegistered() {
			unstarted++
		}
		inc := a.m.incarnation(k.incarnation) // or, by now, another member's of that ID
		if inc != nil && inc.member == id || len(k.checks) > 0 || !k.removed || k.crashed || slices.ContainsFunc(k.builtIn(a.m.levels), a.m.checks.Has) {
			a.fail("member %d has been removed and is still there", id)
		}
	}
	if slices.Sort(removed); !slices.Equal(removed, a.m.Removed()) {
		a.fail("%v have been removed, and %v are listed", removed, a.m.Removed())
	}
	if n := len(a.m.former.unstarted); n != unstarted {
		a.fail("%d removed members have never registered, and %d are listed", unstarted, n)
	}
}

func (a *auditor) sessions() {
	if listed := len(a.m.sessions) - a.m.ending.Len; a.m.byCreation.Len() != listed {
		a.fail("%d sessions are listed of %d", a.m.byCreation.Len(), listed)
	}
	dead := 0
	defer func() {
		last := uint64(0)
		for s := a.m.ending.First(); s != nil; s = s.inEnding.Next() {
			if dead--; s.ended <= last {
				a.fail("session %s is out of order", s.id)
			}
			last = s.ended
		}
		if dead != 0 {
			a.fail("%d ended sessions are not listed", dead)
		}
	}()
	for _, s := range a.m.sessions {
		if found, _ := a.m.byCreation.Get(s); (found == s) == s.dead() {
			a.fail("session %s is listed: %t", s.id, found == s)
		}
		a.ender(s)
		a.holds -= s.holds.Len + s.leads.Len
		a.permits -= s.permits.Len
		a.shares -= s.shares.Len
		if claims := s.shareClaims; s.ttl == 0 && claims != nil && claims.Len() != s.shares.Len+sharesOfSets(s) || s.ttl != 0 && claims != nil {
			a.fail("session %s has %d shares, and others to claim", s.id, s.shares.Len)
		}
		a.waiters -= s.waiters.Len
		a.waiting -= s.waiters.Len
		a.locked -= s.locked()
		if claims := s.claims; s.ttl == 0 && s.permits.Len != 0 && claims.Len() != s.permits.Len || s.ttl != 0 && (claims != nil || s.attached != 0) {
			a.fail("session %s has %d permits, and others to claim", s.id, s.permits.Len)
		}
		switch {
		case s.dead():
			dead++
			if s.incarnation != nil || s.at != 0 || s.ended > a.m.endings || !s.recorded {
				a.fail("session %s has ended and is still bound", s.id)
			}
		case s.incarnation != nil:
			a.bound--
		case s.client:
			// see clients
		case a.m.members[s.member] == nil || a.m.members[s.member].removed:
			a.fail("session %s belongs to a removed member", s.id)
		case s.ttl != 0 && !s.standalone:
			a.fail("session %s has a TTL and is unbound", s.id)
		}
	}
}

// views prints all that can be seen of a machine from outside.
func views(m *Machine) string {
	var w strings.Builder
	for _, v := range allLocks(m, "") {
		printLock(&w, v)
	}
	for _, v := range allSessions(m) {
		printSession(&w, v)
	}
	for _, name := range slices.Sorted(maps.Keys(m.semaphores.byName)) {
		printSemaphore(&w, name, *semaphoreOf(m, name))
	}
	for _, name := range slices.Sorted(maps.Keys(m.elections.byName)) {
		fmt.Fprintln(&w, name, printLeader(leaderOf(m, name)))
	}
	printJobs(&w, m)
	printShardSets(&w, m)
	for _, e := range keysOf(m, "") {
		if keyOf(m, e.Key) != e {
			fmt.Fprintln(&w, "KeyQuery and KeysQuery differ")
		}
		fmt.Fprintln(&w, printEntry(e))
	}
	fmt.Fprintln(&w, m.Liveness(), m.Removed(), m.Registered(), m.Members(), m.GroupConfig(), changesOf(m))
	at, ok := m.NextDeadline()
	fmt.Fprintln(&w, m.Now(), at, ok)
	return w.String()
}

// belongings checks what is counted elsewhere than where it is: the values of
// candidates, the sessions of members, permits that are held back.
func (a *auditor) belongings() {
	values, sessions, labels, queued := 0, 0, 0, 0
	for _, space := range []space{a.m.locks, a.m.elections, a.m.jobs.locks} {
		for _, l := range space.byName {
			queued += l.waiters()
			if l.set() == nil {
				labels += len(l.label())
			}
			for _, sh := range a.m.sharesOf(l) {
				if sh.set() == nil {
					labels += len(sh.label)
				}
			}
			if l.owner == nil && (l.label() != "" || l.since != 0) {
				a.fail("lock %q has a label, or a time, without an owner", l.name())
			}
			for w := l.head(); w != nil; w = w.inQueue.Next() {
				labels += len(w.label)
			}
		}
	}
	if labels != a.m.labels {
		a.fail("labels have %d bytes, and %d are counted", labels, a.m.labels)
	}
	for _, s := range a.m.semaphores.byName {
		queued += s.queue.Len
	}
	for _, l := range a.m.elections.byName {
		values += l.leader().Bytes()
		for w := l.head(); w != nil; w = w.inQueue.Next() {
			values += len(w.value)
		}
	}
	if values != a.m.candidates {
		a.fail("candidates' values have %d bytes, and %d are counted", values, a.m.candidates)
	}
	if queued += a.m.sets.waiting; queued != a.m.Counts().Waiters {
		a.fail("%d requests wait, and %d are counted", queued, a.m.Counts().Waiters)
	}
	for _, k := range a.m.members {
		sessions += a.owned(k.id, false, k.sessions)
	}
	for id, c := range a.m.clients {
		sessions += a.owned(id, true, c.sessions)
	}
	if sessions+a.m.ending.Len != len(a.m.sessions) || sessions != a.m.Counts().Sessions {
		a.fail("members have %d sessions of %d", sessions, len(a.m.sessions))
	}
	for name, s := range a.m.semaphores.byName {
		back := 0
		for _, p := range s.all() {
			if p.owner == nil {
				back++
			}
		}
		if back != s.back.len || back != len(s.back.all()) || !slices.IsSortedFunc(s.back.all(), byEnd) || s.shortened {
			a.fail("semaphore %q: held back are %d, and %d are listed", name, back, s.back.len)
		}
	}
}

// owned counts the sessions of a member or client.
func (a *auditor) owned(id uint64, client bool, sessions ordered.List[session, sessionsOfMember]) int {
	for s := sessions.First(); s != nil; s = s.inMember.Next() {
		if s.member != id || s.client != client || a.m.sessions[s.id] != s {
			a.fail("session %s is not of member %d", s.id, id)
		}
	}
	return sessions.Len
}

// names reports whether a ticket names a process that is registered or, if it may have
// ended, was.
func (a *auditor) names(t ticket, ended bool) bool {
	return a.m.incarnation(t.by.id) == t.by || ended && a.m.gone[t.by.id] == t.by
}
