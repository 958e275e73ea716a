//go:build linux

package main

import (
	"slices"
	"time"
)

// ratePercent is how much of a period on the clock of this machine group time needs at least: it may run faster by 1 %, and the clock
// of a leader by as much.
const ratePercent = 97

// checkPeriods checks that runs of jobs with a period have not begun in shorter time than their periods. A run began after it was
// asked for, and before its function was called.
func checkPeriods(v *verdict, ops []*operation) {
	var regular []*operation
	for _, op := range ops {
		if op.Op == opRun && op.Every != 0 && op.result == resultOK {
			regular = append(regular, op)
		}
	}
	for _, runs := range byName(regular) {
		slices.SortFunc(runs, func(a, b *operation) int { return compare(int64(a.fence), int64(b.fence)) })
		for i, first := range runs {
			for n, last := range runs[i+1:] {
				least := time.Duration(n+1) * first.Every * ratePercent / 100
				if within := time.Duration(last.returned - first.Time); within < least {
					v.violation("%d runs of %s have begun within %v, want at least %v: %v to %v", n+2, first.Name, within, least, first, last)
				}
			}
		}
	}
}
