//go:build linux

package main

import (
	"slices"
	"strings"
	"time"
)

// checkMoves checks that a move is orderly, which the searches do not see, since the former owner does not trust its hold
// any more: the next owner works when the work of the former one has returned, if that is within the grace and the
// session has not ended. That it has not shows by another shard of the worker that it trusts from before until after.
func checkMoves(v *verdict, ops []*operation) {
	owned, trusted := worksOf(ops)
	names := byName(owned)
	for _, r := range ops {
		if r.Op != opReturn || r.result != resultMoved || r.returned == never || time.Duration(r.returned-r.Time) > grace-sessionTTL {
			continue
		}
		live := slices.ContainsFunc(trusted[workerOf(r.Hold)], func(t trust) bool { return t.from < r.Time && t.until > r.returned })
		if !live {
			continue
		}
		for _, next := range names[r.Name] {
			if next.fence > r.Fence && next.returned < r.returned {
				v.violation("a shard was granted to the next owner before the work on it had returned: %v, then %v", next, r)
			}
		}
	}
}

// trust is a time in which the session of a worker was certainly live.
type trust struct{ from, until int64 }

// worksOf returns the works that have begun, and by worker how long each was trusted.
func worksOf(ops []*operation) (owned []*operation, trusted map[string][]trust) {
	trusted = make(map[string][]trust)
	last := make(map[string]int64) // by hold
	for _, op := range ops {
		switch {
		case op.Op == opOwn:
			owned = append(owned, op)
		case op.Op == opCheck && op.result == resultOK:
			last[op.Hold] = max(last[op.Hold], op.Time)
		}
	}
	for _, op := range owned {
		worker := workerOf(op.Hold)
		trusted[worker] = append(trusted[worker], trust{op.returned, last[op.Hold]})
	}
	return owned, trusted
}

// takenOver counts the works on shards whose work before, under the next smaller fence, had ended otherwise than for a move:
// its session was lost, or its process killed.
func takenOver(ops []*operation) (n int) {
	moved := make(map[string]bool)
	var owned []*operation
	for _, op := range ops {
		switch {
		case op.Op == opOwn:
			owned = append(owned, op)
		case op.Op == opReturn && op.result == resultMoved:
			moved[op.Hold] = true
		}
	}
	for _, works := range byGroupAndName(owned) {
		slices.SortFunc(works, func(a, b *operation) int { return compare(int64(a.fence), int64(b.fence)) })
		for i, w := range works[1:] {
			if !moved[works[i].Hold] && w.result == resultOK {
				n++
			}
		}
	}
	return n
}

// roll is a time in which members were restarted in turn, each within Settle. owners has the owners of the shards of the settled
// set, and must own them at every time until the end.
type roll struct {
	from, until int64
	owners      []string
}

// checkRolls checks that no other member has worked on a shard, not even for a time.
func checkRolls(v *verdict, ops []*operation, rolls []roll) {
	for _, op := range ops {
		prefix, shard, ok := shardOf(op)
		if !ok || !strings.HasSuffix(prefix, "/"+settled.kind) {
			continue
		}
		for _, r := range rolls {
			if op.returned > r.from && op.returned < r.until && r.owners[shard] != placeOf(op.process) {
				v.violation("a shard of %s has moved, although each member was back within Settle: %v", r.owners[shard], op)
			}
		}
	}
}

// shardOf returns the set and the shard that a work is on.
func shardOf(op *operation) (set string, shard int, ok bool) {
	if op.Op != opOwn {
		return "", 0, false
	}
	i := strings.LastIndexByte(op.Name, '/')
	for _, digit := range op.Name[i+1:] {
		shard = 10*shard + int(digit-'0')
	}
	return op.Name[:i], shard, true
}

// enoughRuns is how many runs leave some keys closed with certainty: several clients call each key.
const enoughRuns = 20

// checkWork reports a load in which no shard moved, no key was closed, ran to its end or failed, or no job with a period ran: the other
// checks find nothing then.
func checkWork(v *verdict, r *row) {
	if r.owned >= mixed.count+settled.count && r.moved == 0 {
		v.violation("%d shards were owned and none moved: want some", r.owned)
	}
	if r.runs >= enoughForModes && r.regular == 0 {
		v.violation("%d runs of keys of jobs, and none of a job with a period: want some", r.runs)
	}
	if r.runs >= enoughRuns && (r.done == 0 || r.closed == 0) || r.runs >= enoughForModes && r.done == r.runs {
		v.violation("%d runs of jobs, of these %d to their end, and %d calls with ErrJobDone: want some of each, and some that failed", r.runs, r.done, r.closed)
	}
}
