//go:build linux

package main

import (
	"slices"
	"strings"
)

// checkFences checks all grants of all names together: no fence is granted twice, except to
// those that share a lock and to the names of a set, and a grant that was called after another
// one had returned has the larger fence; of locks that linger, a larger one than the other grants
// of its name; of shared holds, which may join others, no smaller one than these. largest is the
// largest fence that was granted before all of these.
func checkFences(v *verdict, ops []*operation, largest uint64) {
	grants := granted(v, ops)
	byFence, sets := make(map[uint64][]*operation), beginnersOf(ops)
	byReturn := slices.Clone(grants)
	slices.SortFunc(byReturn, func(a, b *operation) int { return compare(a.returned, b.returned) })
	var before *operation // the returned grant with the largest fence
	ofName := make(map[string]*operation)
	for _, g := range grants {
		for _, other := range byFence[g.fence] {
			if !samePhase(other, g) && !sets.gave(g.fence, useOf(other), useOf(g)) {
				v.violation("fence %d is granted twice: %v and %v", g.fence, other, g)
				break
			}
		}
		byFence[g.fence] = append(byFence[g.fence], g)
		for len(byReturn) > 0 && byReturn[0].returned < g.Time {
			before = larger(before, byReturn[0])
			ofName[byReturn[0].Name] = larger(ofName[byReturn[0].Name], byReturn[0])
			byReturn = byReturn[1:]
		}
		before, joins := before, g.Op == opRLock || g.Op == opTryRLock
		if local(g) || joins {
			before = ofName[g.Name]
		}
		switch {
		case g.fence <= largest && !local(g):
			v.violation("a fence is not larger than %d, which was granted in an earlier phase: %v", largest, g)
		case before != nil && (g.fence < before.fence || g.fence == before.fence && !joins):
			v.violation("a later grant has a smaller fence: %v, then %v", before, g)
		}
	}
}

// samePhase reports whether two grants of one fence may be of those that held a lock shared together.
func samePhase(a, b *operation) bool {
	return a.Name == b.Name && grantsShared(a) && grantsShared(b) && !(a.Op == opDowngrade && b.Op == opDowngrade)
}

func lingers(op *operation) bool { return strings.Contains(op.Name, "/"+lingering+"/") }

// local reports whether a grant may be one that a process made by itself. Its fence is compared with those of its name.
func local(op *operation) bool { return lingers(op) && op.whole == nil }

// larger returns the grant with the larger fence; a may be nil.
func larger(a, b *operation) *operation {
	if a == nil || b.fence > a.fence {
		return b
	}
	return a
}

// granted returns the acquisitions that were granted, in the order of calls, without
// those that re-entered, whose fence must be that of the hold.
func granted(v *verdict, ops []*operation) []*operation {
	var grants []*operation
	fences := make(map[string]uint64)
	for _, op := range ops {
		acquires := acquires(op) || grantsShared(op) || op.Op == opAcquire
		switch {
		case !acquires || op.result != resultOK:
		case op.fence == 0 && op.Op == opAcquire: // lost before its fence was read
		case op.fence == 0:
			v.violation("a grant has no fence: %v", op)
		case op.Holds > 0 && op.fence != fences[op.Hold]:
			v.violation("a re-entered lock has another fence than %d: %v", fences[op.Hold], op)
		case op.Holds > 0:
		default:
			fences[op.Hold] = op.fence
			grants = append(grants, op)
		}
	}
	return grants
}
