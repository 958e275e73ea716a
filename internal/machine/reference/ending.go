package reference

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// What ends by time, and the release of what ended sessions had: by a limited number of things per entry.

// dead is an ended session that had something which is not released yet.
type dead struct {
	s     *Session
	until int64 // the end of the lock-delay; 0: none
	at    int64 // when it ended
}

// lateSession returns the ended session, or nil.
func (r *Model) lateSession(id wire.ID) *dead {
	for _, d := range r.dead {
		if d.s.ID == id {
			return d
		}
	}
	return nil
}

// releaseDead releases what ended sessions had, one thing after the other.
func (r *Model) releaseDead() {
	for len(r.dead) > 0 && r.quota > 0 {
		r.quota--
		if d := r.dead[0]; !r.releaseOne(d) {
			r.dead = r.dead[1:]
		}
	}
}

// releaseOne releases one thing, unless there is none: a queue place by arrival, a
// set that waits by arrival, a lock or a run by fence, an election by fence, permits by fence, a share by number, a set by fence,
// a worker of shards by fence, a key by name.
func (r *Model) releaseOne(d *dead) bool {
	mine := r.places(func(p Place) bool { return p.Session == d.s.ID })
	slices.SortStableFunc(mine, func(a, b Place) int { return cmp.Compare(min(1, a.names()), min(1, b.names())) })
	if len(mine) > 0 {
		r.quota -= max(1, mine[0].names()) - 1
		r.serveAll(r.remove(mine[:1], wire.Code_SESSION_EXPIRED))
		return true
	}
	for _, election := range []bool{false, true} {
		var first *Lock
		for _, l := range r.Locks {
			if l.Election == election && l.Owner != nil && l.Owner.set == nil && l.Owner.Session == d.s.ID && (first == nil || l.Fence < first.Fence) {
				first = l
			}
		}
		if first != nil {
			d.lose(r, first)
			return true
		}
	}
	return r.releasePermitOf(d) || sharing{r}.releaseOf(d) || sets{r}.releaseOf(d) || shards{r}.releaseOf(d) || r.releaseKeyOf(d)
}

// lose releases a lock of the ended session.
func (d *dead) lose(r *Model, l *Lock) {
	if l.Job != "" {
		jobs{r}.lose(l, d)
	} else {
		r.free(l, d.until)
	}
}

func (r *Model) releasePermitOf(d *dead) bool {
	var at *Semaphore
	fence := uint64(0)
	for _, s := range r.Semaphores {
		i := slices.IndexFunc(s.Permits, func(p Permit) bool { return p.until == 0 && p.Session == d.s.ID }) // in the order of their fences
		if i >= 0 && (at == nil || s.Permits[i].Fence < fence) {
			at, fence = s, s.Permits[i].Fence
		}
	}
	if at != nil {
		r.putBack(at, fence, d.until)
	}
	return at != nil
}

func (r *Model) releaseKeyOf(d *dead) bool {
	for _, e := range slices.Clone(r.keys.entries) { // by key
		if e.Session == d.s.ID {
			r.freeKey(e, d)
			return true
		}
	}
	return false
}

// freeKey releases or deletes a key of an ended session.
func (r *Model) freeKey(e fact.Entry, d *dead) {
	if d.s.behavior == wire.Behavior_DELETE {
		r.keys.remove(r.index, e.Key)
	} else {
		e.Session = wire.ID{}
		r.putKey(e)
	}
	if d.until > r.Now {
		r.delays = append(r.delays, keyDelay{e.Key, d.until})
	}
}

// visit releases the keys that an operation concerns and ended sessions have locked.
func (r *Model) visit(op *wire.KeyOp) {
	if checkOp(op) != nil {
		return
	}
	for _, e := range slices.Clone(r.keys.entries) {
		concerned := e.Key == op.Key || op.Kind == wire.KeyOp_DELETE_PREFIX && strings.HasPrefix(e.Key, op.Key)
		if d := r.lateSession(e.Session); concerned && d != nil {
			r.freeKey(e, d)
		}
	}
}

// visitLock releases a lock whose owner has ended, or frees its queue of a head that has.
func (r *Model) visitLock(l *Lock) *wire.Reply {
	switch {
	case l == nil:
		return nil
	case l.Owner == nil:
		if len(l.Queue) > 0 && r.lateSession(l.Queue[0].Session) != nil {
			sharing{r}.serve(l)
		}
		return nil
	}
	switch d := r.lateSession(l.Owner.Session); {
	case d == nil:
	case l.Owner.set != nil:
		if bad := (sets{r}).touch(len(l.Owner.set.Parts), false); bad != nil {
			return bad
		}
		sets{r}.release(l.Owner.set, d.until)
	default:
		d.lose(r, l)
	}
	return nil
}

// shortened are semaphores and locks whose queues have lost waiters.
type shortened struct {
	semaphores []*Semaphore
	locks      []*Lock
}

// add adds what is not among them.
func (s *shortened) add(more shortened) {
	for _, o := range more.semaphores {
		if !slices.Contains(s.semaphores, o) {
			s.semaphores = append(s.semaphores, o)
		}
	}
	for _, o := range more.locks {
		if !slices.Contains(s.locks, o) {
			s.locks = append(s.locks, o)
		}
	}
}

func (r *Model) serveAll(shortened shortened) {
	for _, s := range shortened.semaphores {
		r.serve(s)
	}
	for _, l := range shortened.locks {
		sharing{r}.serve(l)
	}
}

// dismissDead removes the head of a queue if its session has ended.
func (r *Model) dismissDead(queue *[]Place) bool {
	head := (*queue)[0]
	if r.lateSession(head.Session) == nil {
		return false
	}
	r.quota--
	*queue = slices.Clone((*queue)[1:])
	r.say(head.Ticket, wire.Code_SESSION_EXPIRED)
	return true
}

// endDelay ends the first lock-delay, of any kind, that has passed.
func (r *Model) endDelay() bool {
	until, key := int64(math.MaxInt64), ""
	var end func()
	consider := func(at int64, k string, f func()) {
		if at != 0 && at <= r.Now && (end == nil || at < until || at == until && k < key) {
			until, key, end = at, k, f
		}
	}
	for _, l := range r.Locks {
		consider(l.until, l.key(), func() { l.until = 0; sharing{r}.serve(l) })
	}
	sharing{r}.considerDelays(consider)
	shards{r}.considerDelays(consider)
	for _, s := range r.Semaphores {
		for _, p := range s.Permits {
			consider(p.until, "p"+s.Name+"\x00"+string(binary.BigEndian.AppendUint64(nil, p.Fence)), func() { r.putBack(s, p.Fence, 0) })
		}
	}
	for _, d := range r.delays {
		consider(d.until, "d"+d.key, func() {
			r.delays = slices.DeleteFunc(r.delays, func(o keyDelay) bool { return o.key == d.key })
		})
	}
	if end != nil {
		end()
	}
	return end != nil
}

// fire fires what is due: sessions first, then lock-delays, then incarnations.
func (r *Model) fire() {
	stale := r.staleChecks()
	late := r.late()
	depending := r.depending(late, stale)
	due := slices.Concat(late, depending)
	var silent []wire.ID
	for _, inc := range r.Incarnations {
		timed := slices.ContainsFunc(r.bound(inc.ID), func(s *Session) bool { return s.ttl > 0 && !slices.Contains(due, s) })
		if !timed && later(inc.renewed, inc.ttl) <= r.Now {
			silent = append(silent, inc.ID)
		}
	}
	slices.SortFunc(silent, func(a, b wire.ID) int { return bytes.Compare(a[:], b[:]) })
	silent = portion(silent, r.quota, func(id wire.ID) int {
		alive := slices.DeleteFunc(r.bound(id), func(s *Session) bool { return slices.Contains(due, s) })
		return 1 + len(alive) + r.queued(id) + len(r.Incarnation(id).answered)
	})
	r.kill(late, fact.Expired)
	r.kill(depending, fact.CheckFailed)
	var shortened shortened
	for _, id := range silent {
		shortened.add(r.dropPlaces(id))
	}
	overdue, together := removing{r}.lateMember(), r.Level >= wire.LevelTogether
	if overdue != 0 && together {
		if shortened.add(removing{r}.strike(overdue)); len(due) > 0 {
			jobs{r}.reached("a member removed while sessions expire")
		}
	}
	r.end(nil, fact.Expired, shortened)
	for r.quota > 0 && (bounding{r}).end() {
	}
	for r.quota > 0 && r.endDelay() {
		r.quota--
	}
	for r.quota > 0 && (shards{r}).endWorker() {
		r.quota--
	}
	sharing{r}.goOn()
	for _, id := range silent {
		r.drop(id, fact.Expired)
	}
	switch {
	case overdue == 0:
	case together:
		removing{r}.clear(overdue)
	default:
		removing{r}.expel(overdue)
	}
	r.forgetPast()
}

// portion returns the first of all, and what follows as long as all together are not more
// than an entry may end.
func portion[T any](all []T, most int, size func(T) int) []T {
	sum := 0
	for i, x := range all {
		if sum > 0 && sum+size(x) > most {
			return all[:i]
		}
		sum += size(x)
	}
	return all
}

// late returns the sessions whose TTL has expired, as many as the entry may end.
func (r *Model) late() []*Session {
	deadline := func(s *Session) int64 {
		if s.Standalone {
			return later(s.renewed, s.ttl)
		}
		return later(r.Incarnation(s.Incarnation).renewed, s.ttl)
	}
	var due []*Session
	for _, s := range r.Sessions {
		if s.ttl > 0 && deadline(s) <= r.Now {
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *Session) int {
		return cmp.Or(cmp.Compare(deadline(a), deadline(b)), bytes.Compare(a.Incarnation[:], b.Incarnation[:]), byAge(a, b))
	})
	due = due[:min(len(due), max(0, r.quota-len(r.dead)))]
	slices.SortFunc(due, func(a, b *Session) int {
		return cmp.Or(cmp.Compare(deadline(a), deadline(b)), byAge(a, b))
	})
	return due
}
