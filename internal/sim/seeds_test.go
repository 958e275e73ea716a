package sim

import (
	"container/heap"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// A whole group on one goroutine, from one seed: the production core, machine,
// log and database, over a disk that loses what was not synced, a network that
// loses, doubles, delays and cuts, clocks that do not quite agree, and programs
// that lock and unlock.
//
//	go test ./internal/sim -run TestSeeds -seeds 50 -first 1
//	go test ./internal/sim -run TestSeeds -seed 7      one run, and its story
//
// The world (this file) is the queue of events, member_test.go drives a
// core as the loop and the writer do, program_test.go is what a process
// does: with locks, elections and semaphores (handle, space), with keys (write),
// with checks (check), with a session that outlives it (keeper), and at last it
// may leave (leave). fault_test.go and link_test.go are what goes wrong.
//
// Three kinds of checks know nothing of each other: history_test.go and
// reference_test.go hold all that is said against the log, replayed by a
// machine and by the reference; audit*_test.go hold the log against the
// promises; outside_test.go and its models look at what programs were told,
// without the log.
//
// Directed runs, in scripted worlds (script): ttl, delay, herd, directed.
var (
	seeds = flag.Int("seeds", 24, "how many seeds TestSeeds runs")
	first = flag.Uint64("first", 1, "the first of them")
	only  = flag.Uint64("seed", 0, "run this one alone, and tell its story")
)

func TestSeeds(t *testing.T) {
	if *only != 0 {
		runSeed(t, *only)
		return
	}
	n := *seeds
	if testing.Short() {
		n = min(n, 5) // one goroutine: the race detector has nothing to find in more
	}
	var sum tally
	for i := range uint64(n) {
		seed := *first + i
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { sum.add(runSeed(t, seed)) }) {
			return
		}
	}
	t.Logf("%d seeds: %v", n, sum)
}

// Seeds that found something once, and what. Their stories change with the simulator;
// what they found has a directed test too, or is a rule of the simulator now.
var found = map[uint64]string{
	227:   "who left was told so by the only one to know that it was agreed on; he died for good, and the others still needed the vote of the one who had gone",
	262:   "who had been told by the log that it has left stopped, though its vote was still needed to take it out",
	10757: "on coarse clocks a lock-delay takes half its time",
	11123: "a state that has just come by snapshot may be ahead of the changes that are told next",
	19909: "a leader that had just lost its office passed a request to hand it over on to the new one, in the name of who was to get it",
	533:   "a session older than a key's deletion was given a lock index twice, as a younger one had locked the new key first",
}

func TestSeedsThatFoundSomething(t *testing.T) {
	for seed, what := range found {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Log(what)
			runSeed(t, seed)
		})
	}
}

// The same seed makes the same world, or a failure could not be looked into.
func TestSeedRepeats(t *testing.T) {
	for _, seed := range []uint64{4709, 4711, 4714} { // with coarse clocks, with disks that keep something, with slow application
		if a, b := runSeed(t, seed), runSeed(t, seed); a.story.Sum64() != b.story.Sum64() {
			t.Fatalf("two stories from seed %d", seed)
		}
	}
}

// runSeed runs one world from its beginning to a quiet end.
func runSeed(t *testing.T, seed uint64) *world {
	cryptotest.SetGlobalRandom(t, seed) // raft's dice
	w := newWorld(t, seed)
	n := []int{1, 3, 3, 3, 5}[w.rng.IntN(5)]
	f := chooseFaults(w)
	if f.leaves && w.later.IntN(2) == 0 {
		n = 4
	}
	w.begin(n, f)
	defer w.end()
	w.trouble()
	w.run("the troubles", func() bool { return w.now >= troubled })
	w.heal()
	w.await(peace, "rest after all was healed", w.settled)
	w.fallSilent()
	for _, m := range w.present() {
		w.history.audit.fedUp(m.life)
	}
	w.compareDisks()
	w.outside.verdict()
	w.say("end: %d entries, %v", w.history.last(), w.now)
	t.Logf("seed %d: %v", seed, new(tally).add(w))
	return w
}

// fallSilent checks that a session ends soon after its TTL when nobody renews it and
// the leader stays: none of those that have one is left.
func (w *world) fallSilent() {
	w.silent = true
	w.pass(longestTTL + 2*election)
	for _, s := range sessionsOf(w.history.oracle) {
		if s.TTL != 0 {
			w.fail("session %s with a TTL of %v still lives, though nobody renews it", s.ID, time.Duration(s.TTL))
		}
	}
}

const (
	tick          = 100 * time.Millisecond
	electionTicks = 10
	troubled      = 25 * time.Second
	peace         = 60 * time.Second // by then everything has to be at rest
)

type world struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	later   *rand.Rand // dice of what was added later, so that old seeds keep their stories
	now     time.Duration
	events  events
	ordinal uint64
	ran     int
	members []*simMember
	network network
	disks   struct{ slow bool }
	faults  faults
	history *history
	outside *outside
	fences  map[string]uint64 // by lock: the last that somebody believed in
	calm    bool              // the programs wind up
	silent  bool              // and then do nothing any more
	limits  map[string]uint32 // of semaphores, as programs take them for agreed
	swapped map[string]bool   // key@index: was changed by a comparison with this
	writes  int
	crashes int
	traffic traffic
	script  func(*program)      // what programs do instead of what they else would
	passing func(time.Duration) // sees the time go by
	story   interface {
		Write([]byte) (int, error)
		Sum64() uint64
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), later: rand.New(rand.NewPCG(seed, 1)), story: fnv.New64a(), fences: make(map[string]uint64)}
	w.traffic.messages = make(map[raftpb.MessageType]int)
	w.limits = semaphoreLimits()
	w.swapped = make(map[string]bool)
	w.history, w.outside = newHistory(w), newOutside(w)
	return w
}

// begin founds a group of n.
func (w *world) begin(n int, f faults) {
	for i := range n {
		w.members = append(w.members, newSimMember(w, i))
	}
	w.faults = f
	w.setClocks()
	w.found(f)
}

func (w *world) found(f faults) {
	n := len(w.members)
	w.faults, w.network = f, f.network(n)
	w.say("%d members, faults %+v", n, f)
	for _, m := range w.members {
		m.bootstrap(n)
		m.start()
	}
}

func (w *world) end() {
	for _, m := range w.members {
		m.crash("end")
	}
}

// event is something that happens at a time. Events of one time happen in the
// order in which they were planned.
type simEvent struct {
	at      time.Duration
	ordinal uint64
	run     func()
}

type events []simEvent

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].ordinal < e[j].ordinal
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(simEvent)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *world) after(d time.Duration, run func()) {
	w.ordinal++
	heap.Push(&w.events, simEvent{w.now + d, w.ordinal, run})
}

func (w *world) run(chapter string, until func() bool) {
	defer func() {
		if p := recover(); p != nil {
			w.fail("panic in %s: %v\n%s", chapter, p, debug.Stack())
		}
	}()
	for !until() {
		e := heap.Pop(&w.events).(simEvent)
		if w.passing != nil {
			w.passing(e.at - w.now)
		}
		w.now = e.at
		w.ran++
		e.run()
		for _, m := range w.members {
			m.watch()
		}
	}
}

func (w *world) await(limit time.Duration, what string, until func() bool) {
	w.t.Helper()
	limit += w.now
	w.run(what, func() bool {
		if w.now > limit {
			for _, m := range w.members {
				if m.life != nil {
					w.t.Log(m.life.program.unrest())
				}
			}
			w.fail("no %s until %v", what, limit)
		}
		return until()
	})
}

// say adds to the story.
func (w *world) say(format string, args ...any) {
	line := fmt.Sprintf("%9.4f ", w.now.Seconds()) + fmt.Sprintf(format, args...)
	fmt.Fprintln(w.story, line)
	if *only != 0 {
		w.t.Log(line)
	}
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d at %v: %s\nrepeat it with: go test ./internal/sim -run TestSeeds -seed %d -v",
		w.seed, w.now, fmt.Sprintf(format, args...), w.seed)
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

func (w *world) id() (id wire.ID) {
	for i := range id {
		id[i] = byte(w.rng.Uint32())
	}
	return id
}

// settled says that everything planned has been done: all members are at the
// same place, with nothing under way, and every program has locked and unlocked
// once more.
func (w *world) settled() bool {
	for _, m := range w.present() {
		l := m.life
		if l == nil || l.busy || l.core.Status().Applied != w.history.last() || !l.program.done() {
			return false
		}
	}
	return true
}

// present are the members that have not left, and are not dead for good.
func (w *world) present() []*simMember {
	return slices.DeleteFunc(slices.Clone(w.members), func(m *simMember) bool { return m.gone || m.dead })
}
