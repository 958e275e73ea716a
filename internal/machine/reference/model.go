// Package reference is a second implementation of the machine's rules, with slices,
// copies and linear searches. It shares only the messages with the machine, and is
// slow on purpose: it has none of the machine's indexes. Only tests may import it.
package reference

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Model is a group's state. The zero value is that of a new group. The exported
// fields are for generators of commands; only Apply changes them.
type Model struct {
	Now          int64  // group time
	Granted      uint64 // fences
	Level        uint32 // of features; 0 is the first
	Checks       []*Check
	Incarnations []Incarnation
	Sessions     []*Session
	Locks        []*Lock // and elections, and those of jobs
	Sets         []*Set  // that are held, by fence
	Waiting      []*Set  // those that wait, by arrival
	Semaphores   []*Semaphore
	Jobs         []*Job
	ShardSets    []*ShardSet
	Groups       Groups
	Split        int // things that one entry releases; 0: MaxReleased

	// Bytes of outcomes that are not acknowledged: of one process, of all clients or members,
	// and of one process whatever others have. 0: the limits.
	MostOutcomes, AllOutcomes, LeastOutcomes int

	// Numbers of permits that are remembered: of one semaphore, and the bytes of all. 0: the limits.
	MostFormer, MostFormerBytes int

	// What a search for a deadlock may look at, and those of one entry. 0: the limits.
	MostSearched, MostAllSearched int

	// Names of sets that commands take or release in one entry. 0: the limit.
	MostTouched int

	// Keys that prefixes of one entry find. 0: the limit.
	MostPrefixed int

	// Jobs, and the bytes of what is retained of them. 0: the limits.
	MostJobs, MostJobBytes int

	Reached map[string]int // what has happened to jobs and shards, how often; nil: it is not counted

	searchedSets map[bool]int // by searches before a reservation, in the present entry, for sets of clients or not
	searched     map[bool]int // by those of the present entry, for clients or not
	touched      map[bool]int // likewise
	prefixed     map[bool]int // likewise
	former       []formerSlot // the oldest first
	past         []ended      // clients whose keys must not be used again yet
	dead         []*dead      // sessions whose holds are being released, in the order of their ends
	quota        int          // things that the present entry may still release
	grants       int          // shares that it may still grant to waiters
	trace        []byte       // of the release being applied
	forClient    bool         // the command being applied is a client's
	index, term  uint64
	arrivals     int
	members      []Member
	Config       fact.GroupConfig // zero: none was set
	keys         keys
	delays       []keyDelay

	outcomes []fact.Outcome
	ended    []fact.Ended
	recalls  []fact.Recall
	leaders  []fact.LeaderChange

	shardChanges []fact.ShardChange
	shardGrants  int // of shards that the present entry may still make
}

// Incarnation is one process of a member, or a client.
type Incarnation struct {
	ID           wire.ID
	Member       uint64
	Client       bool // Member is a client's ID
	until        int64
	Floor        uint64
	ttl, renewed int64
	answered     []fact.Outcome
	barred       uint64 // tickets up to here are refused unless they are answered
}

// Session is a live session.
type Session struct {
	ID          wire.ID
	Incarnation wire.ID // zero: unbound
	Member      uint64
	Client      bool // Member is a client's ID
	name        string
	Checks      []string
	Standalone  bool  // bound to no process, ever
	renewed     int64 // if it is standalone
	ttl, delay  int64
	created     uint64
	behavior    wire.Behavior
}

// Place is a request for a lock, an election or permits.
type Place struct {
	Session wire.ID
	Handle  uint64
	Ticket  wire.Ticket
	Permits uint32
	Label   string
	Since   int64 // of a request that waits, or of a hold; 0: unknown
	value   []byte
	linger  bool
	shared  bool
	arrival int
	jobPlace
	set *Set // of which it is; nil: of none
	End
}

// Apply applies a decoded batch; nil is the first entry of a term. The result has no
// Changes, and its replies have no details for people.
func (r *Model) Apply(index, term uint64, b *wire.Batch) fact.Result {
	r.index, r.term, r.searchedSets = index, term, map[bool]int{}
	r.outcomes, r.ended, r.leaders, r.keys.changed, r.recalls, r.shardChanges = nil, nil, nil, nil, nil, nil
	if r.quota = r.Split; r.quota == 0 {
		r.quota = MaxReleased
	}
	over := r.Groups.Sealed
	if b == nil {
		if !over {
			r.startTerm()
			shards{r}.plan()
		}
		return fact.Result{Shards: r.shardChanges}
	}
	r.grants, r.searched, r.touched, r.prefixed = min(r.quota, MaxGrants), map[bool]int{}, map[bool]int{}, map[bool]int{}
	if !over {
		r.Now = max(r.Now, b.Time)
		r.fire()
	}
	for _, s := range b.Submissions {
		if len(s.Incarnation) == 16 {
			as := r.as(s)
			if inc := r.Incarnation(wire.ID(s.Incarnation)); inc == nil || inc.Member == s.Member && inc.Client == as.client {
				r.submission(wire.ID(s.Incarnation), as, s)
			}
		}
	}
	if !over {
		shards{r}.plan()
	}
	return fact.Result{Outcomes: r.outcomes, Ended: r.ended, Keys: r.keys.changed, Leaders: r.leaders, Recalls: r.recalls, Shards: r.shardChanges}
}

func (r *Model) startTerm() {
	for i := range r.Incarnations {
		r.Incarnations[i].renewed = r.Now
	}
	for _, s := range r.Sessions {
		if s.Standalone && s.ttl > 0 {
			s.renewed = r.Now
		}
	}
	for _, c := range r.Checks {
		if c.ttl > 0 && c.state != wire.CheckState_CRITICAL {
			c.refreshed = r.Now
		}
	}
}

func (r *Model) submission(id wire.ID, as as, s *wire.Submission) {
	if inc := r.Incarnation(id); inc != nil && s.Floor > inc.Floor {
		inc.Floor = s.Floor
		inc.answered = slices.DeleteFunc(inc.answered, func(o fact.Outcome) bool { return o.Ticket.Seq <= s.Floor })
	}
	for _, c := range s.Calls {
		t := wire.Ticket{Incarnation: id, Seq: c.Seq}
		floor := s.Floor
		if inc := r.Incarnation(id); inc != nil {
			floor = inc.Floor
		}
		if c.Seq <= floor {
			continue
		}
		if old := r.answered(t); old != nil {
			r.outcomes = append(r.outcomes, *old)
			continue
		}
		if c.Seq-floor > MaxInFlight || r.barred(t, c.Command) {
			r.bar(t)
			r.outcomes = append(r.outcomes, fact.Outcome{Ticket: t, Member: s.Member, Reply: &wire.Reply{Code: wire.Code_BUSY, Index: r.index}})
			continue
		}
		reply := r.command(t, as, floor, c.Command)
		if reply.Index == 0 {
			reply.Index = r.index
		}
		o := fact.Outcome{Ticket: t, Member: s.Member, Reply: reply, More: reply.Code == wire.Code_QUEUED}
		r.outcomes = append(r.outcomes, o)
		if inc := r.Incarnation(id); inc != nil {
			inc.answered = append(inc.answered, o)
		}
	}
}

func (r *Model) command(t wire.Ticket, as as, floor uint64, data []byte) *wire.Reply {
	c := new(wire.Command)
	err := proto.Unmarshal(r.readable(data), c)
	if op := c.GetRegister(); err == nil && op != nil && !as.client {
		return r.register(t.Incarnation, as.id, floor, op)
	}
	if op := c.GetRegisterClient(); err == nil && op != nil {
		if r.Groups.Sealed {
			return answer(wire.Code_GROUP_DELETED)
		}
		return r.registerClient(t.Incarnation, as, floor, op)
	}
	inc := r.Incarnation(t.Incarnation)
	if inc == nil {
		return answer(wire.Code_UNKNOWN_INCARNATION)
	}
	if err != nil {
		return answer(wire.Code_INVALID)
	}
	if r.forClient = inc.Client; inc.Client && forbidden(c) {
		return answer(wire.Code_INVALID)
	}
	if bad := (groups{r}).refused(c); bad != nil {
		return bad
	}
	return r.known(t, inc, c)
}

// known executes a command of a registered incarnation.
func (r *Model) known(t wire.Ticket, inc *Incarnation, c *wire.Command) *wire.Reply {
	switch op := c.Op.(type) {
	case *wire.Command_Renew:
		inc.renewed = r.Now
		return bounding{r}.renewal()
	case *wire.Command_Deregister:
		r.drop(t.Incarnation, fact.Closed)
		return answer(wire.Code_OK)
	case *wire.Command_RemoveMember:
		return r.removeMember(inc, op.RemoveMember)
	case *wire.Command_AdmitMember:
		return r.admit(op.AdmitMember)
	case *wire.Command_SetGroupConfig:
		return r.setConfig(op.SetGroupConfig)
	case *wire.Command_OpenSession:
		return r.open(inc, op.OpenSession)
	case *wire.Command_CloseSession:
		return r.close(t.Incarnation, op.CloseSession)
	case *wire.Command_AttachSession:
		return r.attach(inc, op.AttachSession)
	case *wire.Command_SetCheck:
		return r.setCheck(inc.Member, op.SetCheck)
	case *wire.Command_DropCheck:
		return r.dropCheck(inc.Member, op.DropCheck)
	case *wire.Command_ReportGossip:
		return r.gossip(op.ReportGossip)
	case *wire.Command_ReportProcess:
		return crashed(r, op.ReportProcess)
	case *wire.Command_RaiseLevel:
		return r.raise(inc.Member, op.RaiseLevel)
	case *wire.Command_Lock:
		return r.lock(t, op.Lock)
	case *wire.Command_Unlock:
		return r.unlock(op.Unlock)
	case *wire.Command_Proclaim:
		return r.proclaim(op.Proclaim)
	case *wire.Command_Acquire:
		return r.acquire(t, op.Acquire)
	case *wire.Command_Release:
		return r.release(op.Release)
	case *wire.Command_Resize:
		return r.resize(op.Resize)
	case *wire.Command_Refill:
		return r.refill(op.Refill)
	case *wire.Command_Withdraw:
		return r.withdraw(t.Incarnation, op.Withdraw)
	case *wire.Command_Write:
		return r.write(op.Write)
	case *wire.Command_RenewClients:
		return r.renewClients(op.RenewClients)
	case *wire.Command_CreateSession:
		return r.create(inc, op.CreateSession.Session)
	case *wire.Command_RenewSession:
		return r.renewSession(op.RenewSession)
	case *wire.Command_Downgrade:
		return sharing{r}.downgrade(op.Downgrade)
	}
	return groups{r}.command(t, c)
}

func (r *Model) Incarnation(id wire.ID) *Incarnation {
	for i := range r.Incarnations {
		if r.Incarnations[i].ID == id {
			return &r.Incarnations[i]
		}
	}
	return nil
}

func answer(code wire.Code) *wire.Reply { return &wire.Reply{Code: code} }

func later(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}
