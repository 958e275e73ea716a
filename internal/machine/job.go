package machine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// job is a piece of work that runs for each of its keys to its end once, or again and again with a period of group time
// between the starts. A run is a hold of a lock in a space of its own, with the name of the job and the key; what
// the job retains of its runs decides who may take the lock.
type job struct {
	name    string
	forgets bool            // a key was forgotten
	floor   string          // with forgets: the largest of those, in natural order; this one and what is below it do not run any more
	periods uint64          // runs without a key so far
	byKey   map[string]*run // the last run of each retained key
	keyed   []*run          // in natural order
	regular []*run          // the last runs without a key, in their order
	locks   int             // of the job: held, delayed or awaited
	slot    ordered.Slot
}

// run is the last run of a key, or one without a key.
type run struct {
	job      *job
	key      string
	period   uint64 // of a run without a key: its number; else 0
	result   wire.RunResult
	attempts uint32 // runs of the key so far
	fence    uint64 // of the last one
	session  wire.ID
	member   uint64
	client   bool
	started  int64 // group time
	ended    int64 // group time; 0: it runs
	detail   string
	keep     int64 // see wire.RunJob
	every    int64
	lock     *lock // of a key, while it is held, delayed or awaited
}

// terms are what a request for a run wants.
type terms struct {
	attempts    uint32
	keep, every int64
}

// jobs holds the jobs, and the locks that their runs hold.
type jobs struct {
	byName map[string]*job
	index  ordered.Index[job]
	locks  space
	bytes  int // that they retain; see jobBytes
}

func newJobs(v *ordered.Visits) jobs {
	return jobs{
		byName: make(map[string]*job), locks: newSpace(v),
		index: ordered.NewIndex(v, func(j *job) string { return j.name }, func(j *job) *ordered.Slot { return &j.slot }),
	}
}

func (js *jobs) add(j *job) {
	js.byName[j.name] = j
	js.index.Add(j)
	js.bytes += jobBytes + len(j.name)
}

// remove removes a job that has nothing to retain.
func (js *jobs) remove(j *job) {
	delete(js.byName, j.name)
	js.index.Remove(j)
	js.bytes -= jobBytes + len(j.name)
}

// What a job counts, a retained key besides its own bytes, and the runs without a key, however many are retained.
const (
	jobBytes     = 256
	runBytes     = 512
	regularBytes = MaxRuns * 256
)

// jobOf splits the name of a lock in the space of jobs.
func jobOf(name string) (job, key string) {
	job, key, _ = strings.Cut(name, "\x00")
	return job, key
}

func jobName(job, key string) string { return job + "\x00" + key }

// search returns the position of the key among those retained, or where it belongs.
func (j *job) search(key string) (at int, found bool) {
	return slices.BinarySearchFunc(j.keyed, key, func(r *run, key string) int { return naturally(r.key, key) })
}

// find returns the last run of a key, or nil; of "": the last run without a key.
func (j *job) find(key string) *run {
	switch {
	case j == nil:
	case key != "":
		return j.byKey[key]
	case len(j.regular) > 0:
		return j.regular[len(j.regular)-1]
	}
	return nil
}

// isBelow reports whether the key may have been forgotten.
func (j *job) isBelow(key string) bool { return j.forgets && naturally(key, j.floor) <= 0 }

// naturally compares keys by natural order: the numbers in them by value, all else by bytes. So the keys of times and
// of counters ascend. Keys that differ in leading zeros only are in the order of their bytes.
func naturally(a, b string) int {
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	for same > 0 && isDigit(a[same-1]) {
		same-- // to where the number begins
	}
	x, y := a[same:], b[same:]
	for x != "" && y != "" {
		if isDigit(x[0]) && isDigit(y[0]) {
			var m, n string
			m, x = digits(x)
			n, y = digits(y)
			if c := cmp.Or(cmp.Compare(len(m), len(n)), strings.Compare(m, n)); c != 0 {
				return c
			}
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digits cuts the number off that s begins with, without leading zeros.
func digits(s string) (number, rest string) {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return strings.TrimLeft(s[:n], "0"), s[n:]
}
