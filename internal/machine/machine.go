// Package machine gives the log its meaning: sessions and the checks that they
// depend on, fenced locks, elections and semaphores with the queues for them,
// and keys, as a pure function of the entries applied.
//
// A Machine has no clock, goroutine, file or random source. Time, identities and
// limits come in with the commands; effects go out as values: outcomes addressed to
// tickets, sessions that ended, keys and leaders that changed, and the key/value
// changes that make the new state durable. Apply is total: it yields a Result for
// any bytes and never panics. Two machines that applied the same entries are equal,
// also if one of them was loaded half-way from the changes written.
package machine

import (
	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// Machine is the replicated state. It is not safe for concurrent use.
type Machine struct {
	levels    levels
	now       int64  // group time: the largest of any batch
	fences    uint64 // grants so far
	epoch     uint32 // high bits of each fence
	positions uint64 // queue places assigned so far

	members      map[uint64]*member  // not removed
	former       former              // removed
	roster       []fact.MemberRecord // of the members; never changed in place. nil: see Members
	settings     settings
	groups       groups
	following    *following         // nil: this is the default group
	registered   map[uint64]wire.ID // by member; never changed in place. nil: see Registered
	registry     registry           // at most one incarnation for each member and each client
	clients      map[uint64]*client
	tombstones   tombstones // of clients
	sessions     map[wire.ID]*session
	byCreation   *btree.BTreeG[*session]    // those that have not ended
	freeSessions *btree.FreeListG[*session] // shared by the trees of all classes
	locks        space
	elections    space
	candidates   int // bytes of the values of leaders and candidates
	labels       int // bytes of the labels of owners and waiters
	semaphores   semaphores
	sets         sets
	jobs         jobs
	shardSets    shardSets
	waiting      int // in all queues
	shares       int // of all locks, live and delayed
	resized      int // semaphores that Resize has set a limit of
	keys         keys
	ending       ordered.List[session, endedSessions] // ended, and being released, in this order
	endings      uint64                               // sessions that have ended so far
	gone         map[wire.ID]*incarnation             // ended, and named by the tickets of what they obtained
	split        int                                  // things that one entry releases at most
	checks       *btree.BTreeG[*check]                // by member and name
	checkups     ordered.Heap[*check]
	delays       ordered.Heap[delayed]
	bounds       ordered.Heap[*bound] // the holds that end in time
	portions     ordered.Heap[*lock]  // those whose waiters for shares the next entries grant
	deadlines    ordered.Heap[*incarnation]
	standalone   ordered.Heap[*session] // with a TTL

	retention retention
	searched  searched
	touched   namesTouched
	prefixed  keysFound

	decoder wire.Decoder
	encoder wire.Writer // of outcomes; its memory is used again
	visits  ordered.Visits
	left    int    // things that the present entry may still release
	grants  int    // shares that it may still grant to waiters; see sharing.serve
	cause   []byte // trace of the release that is being applied; nil: none

	unserved  uint64 // not 0: locks have lost waiters in the present entry and are not served yet; see endSessions
	shortened uint64 // times that this was so
	forClient bool   // a client has submitted the command that is being applied

	// Of the entry being applied.
	index    uint64
	term     uint64
	dirty    dirty
	outcomes []fact.Outcome
	ended    []fact.Ended
	recalls  []fact.Recall
	moves    []fact.ShardChange
	changed  []fact.KeyChange
	leaders  []fact.LeaderChange
	listed   bool
}

// New returns the machine before the first entry.
func New() *Machine {
	m := &Machine{split: MaxReleased, levels: levels{firstLevel, wire.FeatureLevel}}
	m.retention = retention{most: MaxOutcomeBytes, all: MaxAllOutcomeBytes, least: MinOutcomeBytes}
	m.searched.each, m.searched.all = MaxSearched, MaxAllSearched
	m.touched.most, m.prefixed.most = MaxTouched, MaxPrefixed
	v := &m.visits
	m.gone = make(map[wire.ID]*incarnation)
	m.members, m.former = make(map[uint64]*member), newFormer()
	m.groups = newGroups()
	m.registry = newRegistry(v)
	m.clients = make(map[uint64]*client)
	m.tombstones = newTombstones(v)
	m.sessions = make(map[wire.ID]*session)
	m.byCreation = ordered.NewTree(v, byCreation)
	m.freeSessions = btree.NewFreeListG[*session](btree.DefaultFreeListSize)
	m.locks, m.elections = newSpace(v), newSpace(v)
	m.semaphores = newSemaphores(v, &m.dirty)
	m.jobs = newJobs(v)
	m.shardSets = newShardSets(v)
	m.sets.byFence = make(map[uint64]*set)
	m.sets.free = btree.NewFreeListG[*part](btree.DefaultFreeListSize)
	m.keys = newKeys()
	m.checks = ordered.NewTree(v, byMember)
	m.checkups = ordered.NewHeap(v, byExpiry, func(c *check) *int { return &c.at })
	m.delays = ordered.NewHeap(v, byDelay, nil)
	m.bounds = newBounds(v)
	m.portions = newPortions(v)
	m.deadlines = ordered.NewHeap(v, byDeadline, func(inc *incarnation) *int { return &inc.at })
	m.standalone = ordered.NewHeap(v, byOwnDeadline, func(s *session) *int { return &s.at })
	return m
}

// Apply applies the entry at index. Empty data is the first entry of a term. A
// malformed Batch, or one of a higher level than the group's, has no effect; the cluster
// must not propose one.
func (m *Machine) Apply(index, term uint64, data []byte) fact.Result {
	m.index, m.term, m.left, m.grants = index, term, m.split, min(m.split, MaxGrants)
	m.searched.members, m.searched.clients, m.searched.sets, m.searched.clientSets = 0, 0, 0, 0
	m.touched.members, m.touched.clients = 0, 0
	m.prefixed.members, m.prefixed.clients = 0, 0
	ended := grouping{m}.isSealed() // nothing but refusals follows
	if len(data) == 0 {
		if !ended {
			m.startTerm()
			sharding{m}.planAll()
		}
		return m.result()
	}
	batch, err := m.decoder.Batch(data)
	defer m.decoder.Release()
	if err != nil || batch.Version == 0 || batch.Version > m.levels.agreed {
		return fact.Result{}
	}
	if !ended {
		m.advance(batch.Time)
	}
	for _, s := range batch.Submissions {
		m.submit(s)
	}
	if !ended {
		sharding{m}.planAll()
	}
	return m.result()
}

// Now returns the group time.
func (m *Machine) Now() int64 { return m.now }

// result returns the effects of the entry and resets them. The machine's own record
// is always written: its clock and counters change with nearly every entry, and Load
// needs the version that it carries.
func (m *Machine) result() fact.Result {
	m.recordEndings()
	m.dirty.put(machineKey, m)
	r := fact.Result{
		Changes: m.dirty.flush(), Outcomes: m.outcomes, Ended: m.ended,
		Keys: m.changed, Leaders: m.leaders, Recalls: m.recalls, Shards: m.moves, Listed: m.listed,
	}
	m.listed = false
	m.outcomes, m.ended, m.changed, m.leaders, m.recalls, m.moves = nil, nil, nil, nil, nil, nil
	return r
}

func (m *Machine) emit(t wire.Ticket, member uint64, r *wire.Reply, more bool) {
	m.outcomes = append(m.outcomes, fact.Outcome{Ticket: t, Member: member, Reply: r, More: more})
}

// reply returns a reply decided by the present entry.
func (m *Machine) reply(code wire.Code) *wire.Reply {
	return &wire.Reply{Code: code, Index: m.index}
}

// refuse returns a reply with a detail for people.
func (m *Machine) refuse(code wire.Code, detail string) *wire.Reply {
	return &wire.Reply{Code: code, Index: m.index, Detail: detail}
}
