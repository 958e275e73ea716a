package machine

import (
	"maps"
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// seedJobs are the pairs of a seed that jobs have, by kind of key: what has run in the old group does not run again in the new
// one. Runs under way are lost, and a run with a period is not sooner.
type seedJobs struct{ jobs, locks, runs []seedPair }

type seedPair struct {
	key   string
	state record
}

func (x jobRuns) seed() (s seedJobs) {
	for _, name := range slices.Sorted(maps.Keys(x.jobs.byName)) {
		j, kept := x.jobs.byName[name], len(s.runs)
		for _, r := range slices.Concat(j.regular, j.keyed) {
			if r.attempts == 0 {
				continue // it waits for its first run, as a request that ends with its session
			}
			old := *r
			if old.result == wire.RunResult_RUNNING {
				old.result, old.ended = wire.RunResult_LOST, x.now
			}
			s.runs = append(s.runs, seedPair{old.durable(), &old})
		}
		slices.SortFunc(s.runs[kept:], func(a, b seedPair) int { return strings.Compare(a.key, b.key) })
		if len(s.runs) > kept || j.forgets || j.periods > 0 {
			s.jobs = append(s.jobs, seedPair{j.durable(), j})
		}
		if last := j.find(""); last != nil && after(last.started, last.every) > x.now {
			l := &lock{key: string(jobLockKind) + jobName(name, ""), delayUntil: after(last.started, last.every)}
			s.locks = append(s.locks, seedPair{l.key, l})
		}
	}
	return s
}

// yieldSeed yields pairs, and reports whether it may go on.
func yieldSeed(pairs []seedPair, yield func(key, value []byte) bool) bool {
	for _, p := range pairs {
		if !yield([]byte(p.key), encode(p.state)) {
			return false
		}
	}
	return true
}
