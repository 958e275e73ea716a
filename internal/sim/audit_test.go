package sim

import (
	"bytes"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// audit holds every single command against the promises, whatever the programs
// meant by it. It replays the log on a machine of its own, one command at a
// time, and looks at the state before and after each. That the commands have
// the same effects so as in the batches that they came in is one of the checks.
type audit struct {
	w        *world
	m        *machine.Machine
	fence    uint64 // the largest given out
	sessions map[wire.ID]machine.SessionView
	grants   map[uint64]grant // that are in force, by fence
	delays   map[thing]int64  // group time until when nobody may get it
	slots    []slot
	taken    map[string]int64 // permits of each semaphore
	queues   map[thing][]place
	awaited  map[wire.Ticket]thing
	answered map[wire.Ticket]bool
	members  map[wire.ID]uint64 // by incarnation
	change   uint64             // index of the last change of a key
	changes  []wire.KeyChange
	entries  map[string]*wire.Entry
	tenures  map[tenure]bool // of keys, ever
	leaders  map[string]*wire.Leader
	led      map[uint64]wire.ID // by fence
}

// thing is what a session may have.
type thing struct {
	kind string // lock, election, semaphore or key
	name string
}

// grant is a hold of a lock, a leadership or an acquisition of permits.
type grant struct {
	thing
	session wire.ID
	permits int64
}

// slot is an acquisition that a lock-delay holds back.
type slot struct {
	semaphore string
	permits   int64
	until     int64
}

// tenure is what a sequencer names.
type tenure struct {
	key       string
	lockIndex uint64
	session   wire.ID
}

func newAudit(w *world) *audit {
	return &audit{
		w: w, m: machine.New(),
		sessions: make(map[wire.ID]machine.SessionView),
		grants:   make(map[uint64]grant),
		delays:   make(map[thing]int64),
		taken:    make(map[string]int64),
		queues:   make(map[thing][]place),
		awaited:  make(map[wire.Ticket]thing),
		answered: make(map[wire.Ticket]bool),
		members:  make(map[wire.ID]uint64),
		entries:  make(map[string]*wire.Entry),
		tenures:  make(map[tenure]bool),
		leaders:  make(map[string]*wire.Leader),
		led:      make(map[uint64]wire.ID),
	}
}

// entry audits one entry. whole is what it yielded in one piece.
func (a *audit) entry(index, term uint64, data []byte, whole wire.Result) {
	var sum wire.Result
	for _, part := range a.split(data) {
		r := a.m.Apply(index, term, part.data)
		sum.Outcomes = append(sum.Outcomes, r.Outcomes...)
		sum.Ended = append(sum.Ended, r.Ended...)
		sum.Keys = append(sum.Keys, r.Keys...)
		sum.Leaders = append(sum.Leaders, r.Leaders...)
		a.command(part, r)
	}
	same := slices.EqualFunc(sum.Outcomes, whole.Outcomes, func(a, b wire.Outcome) bool {
		return a.Ticket == b.Ticket && a.More == b.More && proto.Equal(a.Reply, b.Reply)
	})
	if !same || told(sum) != told(whole) {
		a.w.fail("entry %d yields %v in one piece, and %v one command at a time", index, whole, sum)
	}
	a.compareKeys()
}

// part is an entry with one command at most.
type part struct {
	data    []byte
	ticket  wire.Ticket
	command *wire.Command // nil: only time passes
}

func (a *audit) split(data []byte) []part {
	if len(data) == 0 {
		return []part{{}}
	}
	var batch wire.Batch
	if err := proto.Unmarshal(data, &batch); err != nil {
		a.w.fail("an entry that cannot be decoded: %v", err)
	}
	encode := func(s ...*wire.Submission) []byte {
		b, err := proto.Marshal(&wire.Batch{Version: batch.Version, Time: batch.Time, Submissions: s})
		if err != nil {
			a.w.fail("encoding a batch: %v", err)
		}
		return b
	}
	parts := []part{{data: encode()}}
	for _, s := range batch.Submissions {
		for _, c := range s.Calls {
			p := part{data: encode(&wire.Submission{Incarnation: s.Incarnation, Floor: s.Floor, Calls: []*wire.Call{c}}), command: new(wire.Command)}
			p.ticket.Incarnation, _ = wire.IDFrom(s.Incarnation)
			p.ticket.Seq = c.Seq
			if err := proto.Unmarshal(c.Command, p.command); err != nil {
				a.w.fail("a command that cannot be decoded: %v", err)
			}
			parts = append(parts, p)
		}
	}
	return parts
}

// command audits the state after a command, or after time alone has passed.
func (a *audit) command(p part, r wire.Result) {
	for _, e := range r.Ended {
		if e.Unbound {
			a.unbound(e.Session)
		} else {
			a.ended(p.command, e.Session)
		}
	}
	a.keys(r.Keys)
	a.leadership(r.Leaders)
	a.granted()
	a.permits()
	a.health(p, r)
	a.departed()
	a.queued(p.ticket, p.command, r.Outcomes)
	clear(a.sessions)
	for _, s := range sessionsOf(a.m) {
		a.sessions[s.ID] = s
	}
}

// ended: a session without TTL ends because somebody closed it. What is under a
// lock-delay from now on is noted.
func (a *audit) ended(c *wire.Command, id wire.ID) {
	s, known := a.sessions[id]
	if !known {
		a.w.fail("session %s ends, and there was none", id)
	}
	closing := c.GetCloseSession()
	closed := closing != nil && bytes.Equal(closing.Id, id[:])
	if s.TTL == 0 && !closed && c.GetRemoveMember() == nil {
		a.w.fail("session %s has no TTL and ends though nobody closed it", id)
	}
	if s.LockDelay == 0 || closed && closing.Graceful {
		return
	}
	until := a.m.Now() + s.LockDelay
	for _, fence := range slices.Sorted(maps.Keys(a.grants)) {
		switch g := a.grants[fence]; {
		case g.session != id:
		case g.kind == "semaphore":
			a.slots = append(a.slots, slot{g.name, g.permits, until})
		default:
			a.delays[g.thing] = until
		}
	}
	for _, e := range a.entries { // order: each is noted
		if e.Session == id {
			a.delays[thing{"key", e.Key}] = until
		}
	}
}

// unbound: only a session without TTL lives on without a process.
func (a *audit) unbound(id wire.ID) {
	if s, alive := liveSession(a.m, id); !alive || s.TTL != 0 || !s.Incarnation.IsZero() {
		a.w.fail("session %s is said to be left by its process, and is %+v", id, s)
	}
}

// granted: each fence is larger than all before, and nothing is granted during
// its lock-delay.
func (a *audit) granted() {
	before := a.fence
	now := make(map[uint64]grant)
	for fence, g := range a.inForce {
		if other, twice := now[fence]; twice {
			a.w.fail("%v and %v have the same fence %d", g, other, fence)
		}
		now[fence] = g
		known, old := a.grants[fence]
		switch {
		case old && known != g:
			a.w.fail("fence %d was for %v and is for %v", fence, known, g)
		case old:
			continue
		case fence <= before:
			a.w.fail("%v is granted with fence %d, after %d was given out", g, fence, before)
		}
		a.free(g.thing)
		a.fence = max(a.fence, fence)
	}
	a.grants = now
}

// free: there is no lock-delay.
func (a *audit) free(t thing) {
	if until := a.delays[t]; until > a.m.Now() {
		a.w.fail("%v is granted at %d, and under a lock-delay until %d", t, a.m.Now(), until)
	}
}

// inForce iterates over what the machine holds granted.
func (a *audit) inForce(yield func(uint64, grant) bool) {
	for _, v := range locksOf(a.m) {
		if v.Held && !yield(v.Fence, grant{thing{"lock", v.Name}, v.Session, 0}) {
			return
		}
	}
	for _, name := range elections {
		if l := leaderOf(a.m, name); l != nil && !yield(l.Fence, grant{thing{"election", name}, l.Session, 0}) {
			return
		}
	}
	for _, name := range semaphores {
		v, _ := semaphoreOf(a.m, name)
		for _, p := range v.Holders {
			if !yield(p.Fence, grant{thing{"semaphore", name}, p.Session, int64(p.Permits)}) {
				return
			}
		}
	}
}

// permits: those out and those held back are never more than the limit, unless
// that was made smaller; then they only become fewer.
func (a *audit) permits() {
	a.slots = slices.DeleteFunc(a.slots, func(s slot) bool { return s.until <= a.m.Now() })
	for _, name := range semaphores {
		v, exists := semaphoreOf(a.m, name)
		if !exists {
			continue
		}
		taken := int64(0)
		for _, p := range v.Holders {
			taken += int64(p.Permits)
		}
		for _, s := range a.slots {
			if s.semaphore == name {
				taken += s.permits
			}
		}
		if v.Available != int64(v.Limit)-taken {
			a.w.fail("%s has %d permits available; its limit is %d, and %d are out or held back", name, v.Available, v.Limit, taken)
		}
		if v.Available < 0 && taken > a.taken[name] {
			a.w.fail("%s: permits are granted beyond the limit: %+v", name, v)
		}
		a.taken[name] = taken
		if v.Waiters > 0 && v.Available == int64(v.Limit) {
			a.w.fail("%s: all permits are free, and %d wait", name, v.Waiters)
		}
	}
}
