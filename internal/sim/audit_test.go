package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// audit checks each single command against the promises, whatever the program
// intended. It replays the log on a machine of its own, one command at a time, and
// compares the state before and after. It also checks that commands have the same
// effects one by one as in their batches.
type audit struct {
	sim          *simulation
	m            *machine.Machine
	fence        uint64 // the largest granted
	sessions     map[wire.ID]machine.SessionView
	grants       map[holdID]grant   // in force
	previous     map[holdID]grant   // before the last command
	delayedUntil map[resource]int64 // group time before which no session may be granted it
	sharedUntil  map[resource]int64 // and before which none may be granted it exclusively
	phases       map[string]uint64  // fences of the present shared phases, by lock
	delayedSlots []delayedSlot
	ends         map[uint64]int64       // group time at which holds end by MaxHold, by fence or number of the share
	endedHolds   map[uint64]bool        // those that have
	requested    map[wire.Ticket]uint64 // the holds with MaxHold that requests were granted
	taken        map[string]int64       // permits held or under a lock-delay, by semaphore
	queues       map[resource][]waiter
	waitingSets  []*setWaiter           // in log order
	heldSets     map[uint64]heldSet     // by fence
	request      request                // of the last command
	lastPass     map[wire.Ticket]uint64 // the grant that has passed over a set last
	fresh        map[holdID]uint64      // granted by the last command, with the position of the request; 0: it was not queued
	arrivals     uint64                 // requests that were queued
	waiting      map[wire.Ticket]resource
	answered     map[wire.Ticket]bool
	memberOf     map[wire.ID]uint64 // by incarnation
	silent       map[uint64]bool    // members recorded as dead
	lastChange   uint64             // index of the last change of a key
	changes      []fact.KeyChange
	entries      map[string]*fact.Entry
	sequencers   map[sequencer]bool // all there have ever been
	leaders      map[string]*fact.Leader
	leaderOf     map[uint64]wire.ID // session, by fence
	jobs         *jobAudit
	shards       *shardAudit
	tasks        *taskAudit
	state        map[string][]byte // the durable one before the entry, in worlds with shards; see applyAgain
}

// resource is what a session can hold.
type resource struct {
	kind string // lock, election, semaphore or key
	name string
}

// holdID is what the log knows a hold by: its fence, or the number of a share. The exclusive names of a set have one fence.
type holdID struct {
	number uint64
	part   string // the name of an exclusive part of a set
}

func (id holdID) compare(other holdID) int {
	return cmp.Or(cmp.Compare(id.number, other.number), strings.Compare(id.part, other.part))
}

// grant is a hold of a lock, a leadership or an acquisition of permits.
type grant struct {
	resource
	session wire.ID
	permits int64
	shared  bool
	numbers string // of the permits
}

// delayedSlot is an acquisition whose permits a lock-delay withholds.
type delayedSlot struct {
	semaphore string
	permits   int64
	numbers   string
	until     int64
}

// sequencer identifies one tenure of a key's lock.
type sequencer struct {
	key       string
	lockIndex uint64
	session   wire.ID
}

func newAudit(sim *simulation) *audit {
	a := &audit{
		sim: sim, m: sim.firstMachine(),
		sessions:     make(map[wire.ID]machine.SessionView),
		grants:       make(map[holdID]grant),
		heldSets:     make(map[uint64]heldSet),
		fresh:        make(map[holdID]uint64),
		lastPass:     make(map[wire.Ticket]uint64),
		delayedUntil: make(map[resource]int64),
		sharedUntil:  make(map[resource]int64),
		phases:       make(map[string]uint64),
		ends:         make(map[uint64]int64),
		endedHolds:   make(map[uint64]bool),
		requested:    make(map[wire.Ticket]uint64),
		taken:        make(map[string]int64),
		queues:       make(map[resource][]waiter),
		waiting:      make(map[wire.Ticket]resource),
		answered:     make(map[wire.Ticket]bool),
		memberOf:     make(map[wire.ID]uint64),
		entries:      make(map[string]*fact.Entry),
		sequencers:   make(map[sequencer]bool),
		leaders:      make(map[string]*fact.Leader),
		leaderOf:     make(map[uint64]wire.ID),
		state:        make(map[string][]byte),
	}
	for _, c := range sim.firstState() {
		a.state[string(c.Key)] = c.Value
	}
	a.jobs, a.shards, a.tasks = newJobAudit(a), newShardAudit(a), &taskAudit{audit: a}
	return a
}

// command audits the state after a command, or after group time alone has advanced.
func (a *audit) command(p part, r fact.Result) {
	a.jobs.before = a.fence
	for _, e := range r.Ended {
		if e.Unbound {
			a.sessionUnbound(e.Session)
		} else {
			a.sessionEnded(p.command, e.Session)
		}
	}
	a.checkKeys(r.Keys)
	a.checkLeaders(r.Leaders)
	a.checkEnds(p, r.Outcomes)
	a.checkGrants()
	a.checkPermits()
	a.checkHealth(p, r)
	a.checkRemoved()
	a.shards.command(p, r.Outcomes)
	a.checkQueues(p.ticket, p.command, r.Outcomes)
	clear(a.sessions)
	for _, s := range sessionsOf(a.m) {
		a.sessions[s.ID] = s
	}
}

// sessionEnded: a session without a TTL ends only by a close or a removal. It
// records which resources are under a lock-delay from now on.
func (a *audit) sessionEnded(c *wire.Command, id wire.ID) {
	s, known := a.sessions[id]
	if !known {
		a.sim.fail("session %s ends, but did not exist", id)
	}
	closing := c.GetCloseSession()
	closed := closing != nil && bytes.Equal(closing.Id, id[:])
	if s.TTL == 0 && !closed && c.GetRemoveMember() == nil && c.GetFollowMembers() == nil {
		a.sim.fail("session %s has no TTL and ends without a close or a removal", id)
	}
	if s.LockDelay == 0 || closed && closing.Graceful {
		a.jobs.sessionLost(id, 0)
		a.shards.sessionLost(id, 0)
		return
	}
	a.jobs.sessionLost(id, s.LockDelay)
	a.shards.sessionLost(id, s.LockDelay)
	until := a.m.Now() + s.LockDelay
	for _, hold := range slices.SortedFunc(maps.Keys(a.grants), holdID.compare) {
		switch g := a.grants[hold]; {
		case g.session != id:
		case g.kind == "semaphore":
			a.delayedSlots = append(a.delayedSlots, delayedSlot{g.name, g.permits, g.numbers, until})
		case g.shared:
			a.sharedUntil[g.resource] = max(a.sharedUntil[g.resource], until)
		default:
			a.delayedUntil[g.resource] = until
		}
	}
	for _, e := range a.entries { // order: each is recorded
		if e.Session == id {
			a.delayedUntil[resource{"key", e.Key}] = until
		}
	}
}

// sessionUnbound: only a session without a TTL outlives its process.
func (a *audit) sessionUnbound(id wire.ID) {
	if s, alive := liveSession(a.m, id); !alive || s.TTL != 0 || !s.Incarnation.IsZero() {
		a.sim.fail("session %s is reported unbound, but is %+v", id, s)
	}
	a.shards.sessionUnbound(id)
}

// checkGrants: each fence is larger than all before it, and no grant falls into a
// lock-delay.
func (a *audit) checkGrants() {
	before := a.fence
	now, set := make(map[holdID]grant), make(map[uint64]holdID)
	for hold, g := range a.holds {
		fence := hold.number
		if other, twice := set[fence]; twice && (hold == other || hold.part == "" || other.part == "" || now[other].session != g.session) {
			a.sim.fail("%v and %v have the same fence %d", g, now[other], fence)
		}
		now[hold], set[fence] = g, hold
		known, old := a.grants[hold]
		switch {
		case old && known != g:
			a.sim.fail("fence %d belonged to %v and now belongs to %v", fence, known, g)
		case old:
			continue
		case fence <= before:
			a.sim.fail("%v is granted with fence %d, not above the previous largest fence %d", g, fence, before)
		}
		a.checkDelay(g.resource)
		if until := a.sharedUntil[g.resource]; until > a.m.Now() && !g.shared {
			a.sim.fail("%v is granted at %d, under the lock-delay of a share until %d", g.resource, a.m.Now(), until)
		}
		a.fence = max(a.fence, fence)
	}
	a.checkPhases(before)
	a.previous, a.grants = a.grants, now
}

// checkPhases: all shares of a lock have one fence. It is larger than all before when the phase begins, and changes only
// when a phase ends.
func (a *audit) checkPhases(before uint64) {
	now := make(map[string]uint64)
	for _, v := range locksOf(a.m) {
		if v.Shared == 0 {
			continue
		}
		now[v.Name] = v.Fence
		known, goesOn := a.phases[v.Name]
		if goesOn {
			goesOn = slices.ContainsFunc(v.Holders, func(sh machine.ShareView) bool { return sh.Number <= before }) // none of its shares has to be left
		}
		switch {
		case goesOn && known != v.Fence:
			a.sim.fail("the shared phase of %s has fence %d, and had %d", v.Name, v.Fence, known)
		case known != v.Fence && v.Fence <= before:
			a.sim.fail("a shared phase of %s begins with fence %d, not above %d", v.Name, v.Fence, before)
		}
	}
	a.phases = now
}

// checkDelay: the resource is not under a lock-delay.
func (a *audit) checkDelay(t resource) {
	if until := a.delayedUntil[t]; until > a.m.Now() {
		a.sim.fail("%v is granted at %d, under a lock-delay until %d", t, a.m.Now(), until)
	}
}

// holds iterates over all holds of the machine.
func (a *audit) holds(yield func(holdID, grant) bool) {
	for _, v := range locksOf(a.m) {
		for _, sh := range v.Holders {
			if !yield(holdID{number: sh.Number}, grant{resource{"lock", v.Name}, sh.Session, 0, true, ""}) {
				return
			}
		}
		hold := holdID{number: v.Fence}
		if v.Set > 0 {
			hold.part = v.Name
		}
		if v.Held && v.Shared == 0 && !yield(hold, grant{resource{"lock", v.Name}, v.Session, 0, false, ""}) {
			return
		}
	}
	for _, name := range elections {
		if l := leaderOf(a.m, name); l != nil && !yield(holdID{number: l.Fence}, grant{resource{"election", name}, l.Session, 0, false, ""}) {
			return
		}
	}
	for _, name := range semaphores {
		v, _ := semaphoreOf(a.m, name)
		for _, p := range v.Holders {
			if !yield(holdID{number: p.Fence}, grant{resource{"semaphore", name}, p.Session, int64(p.Permits), false, numbersOf(p)}) {
				return
			}
		}
	}
}

// checkPermits: permits held or under a lock-delay never exceed the limit. After
// the limit was lowered their number may exceed it, but only decreases.
func (a *audit) checkPermits() {
	a.delayedSlots = slices.DeleteFunc(a.delayedSlots, func(s delayedSlot) bool { return s.until <= a.m.Now() })
	for _, name := range semaphores {
		v, exists := semaphoreOf(a.m, name)
		if !exists {
			continue
		}
		taken, numbers := int64(0), ""
		for _, p := range v.Holders {
			taken += int64(p.Permits)
			numbers += " " + numbersOf(p)
		}
		for _, s := range a.delayedSlots {
			if s.semaphore == name {
				taken += s.permits
				numbers += " " + s.numbers
			}
		}
		a.checkNumbers(name, strings.Fields(numbers))
		if v.Available != int64(v.Limit)-taken {
			a.sim.fail("%s has %d permits available, with limit %d and %d held or under a lock-delay", name, v.Available, v.Limit, taken)
		}
		if v.Available < 0 && taken > a.taken[name] {
			a.sim.fail("%s: permits granted beyond the limit: %+v", name, v)
		}
		a.taken[name] = taken
		if v.Waiters > 0 && v.Available == int64(v.Limit) {
			a.sim.fail("%s: all permits are free while %d callers wait", name, v.Waiters)
		}
	}
}

// numbersOf prints the numbers of permits, with spaces between them.
func numbersOf(p machine.PermitView) string { return strings.Trim(fmt.Sprint(p.Slots), "[]") }

// checkNumbers: no two permits that are held or under a lock-delay have the same number.
func (a *audit) checkNumbers(semaphore string, numbers []string) {
	slices.Sort(numbers)
	if len(slices.Compact(slices.Clone(numbers))) < len(numbers) {
		a.sim.fail("%s: two permits have the same number: %v", semaphore, numbers)
	}
}
