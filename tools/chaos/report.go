//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// row is the result of one nemesis.
type row struct {
	nemesis       string
	began, ended  int64
	operations    int // that asked the group, whatever came of them
	unknown       int // of these
	failed        int // of these: without effect
	lost          int // of these: the hold was lost before
	grants        int
	shared        int             // of these: of locks in shared mode
	sets          int             // of these: of sets
	several       int             // of these: of several names
	setsShared    int             // of the sets: with shared names
	expired       int             // holds that were found lost by their MaxHold
	extended      int             // Extends
	owned         int             // calls of the work on a shard
	moved         int             // of these: ended for a move
	takenOver     int             // of these: of shards whose owner before was lost or killed
	runs          int             // of keys of jobs
	regular       int             // runs of jobs with a period
	done          int             // of these: ran to their end, as the group has recorded
	deleted       int             // groups, without force
	forced        int             // groups, with force
	notDeleted    int             // deletions of groups that were refused
	closed        int             // calls of Once for a key that is closed
	gap           time.Duration   // longest time without a successful grant in one of the groups that the run has all the time
	failovers     []time.Duration // from a leader's death to the return of the first grant that was called afterwards
	recovery      time.Duration   // from the last healing until all members work
	before, after usage           // of the members, before the first fault and after the recovery
	unsupported   string          // why the nemesis could not run with this build
	verdict
}

// measure counts.
func (r *row) measure(ops []*operation, deaths []death) {
	var grants []*operation
	expired := make(map[string]bool)
	for _, op := range ops {
		if op.result == resultExpired {
			expired[op.Hold] = true
		}
		r.measureWork(op)
		r.measureLife(op)
		switch op.Op {
		case opCheck, opRCheck, opConfirm, opOwn, opReturn:
			continue
		}
		if op.Op == opEnd && op.Every != 0 { // Every does not say what became of it
			continue
		}
		r.operations++
		switch op.result {
		case resultUnknown:
			r.unknown++
		case resultFailed:
			r.failed++
		case resultLost:
			r.lost++
		case resultOK:
			r.measureSet(op)
			switch op.Op {
			case opExtend:
				r.extended++
			case opRLock, opTryRLock, opDowngrade:
				r.shared++
				fallthrough
			case opLock, opTry, opAcquire, opRun:
				grants = append(grants, op)
			}
		}
	}
	r.grants, r.expired, r.takenOver = len(grants), len(expired), takenOver(ops)
	slices.SortFunc(grants, func(a, b *operation) int { return compare(a.returned, b.returned) })
	r.measureGaps(grants)
	for _, d := range deaths {
		for _, g := range grants {
			if g.Group == d.group && g.Time > d.at {
				r.failovers = append(r.failovers, time.Duration(g.returned-d.at))
				break
			}
		}
	}
}

// measureGaps finds the longest gap between the grants of a group, which are in the order of their returns.
func (r *row) measureGaps(grants []*operation) {
	last := map[string]int64{defaultGroup: r.began}
	for _, g := range grants {
		if g.returned > r.ended {
			break
		}
		if isBrief(g.Group) {
			continue
		}
		before, known := last[g.Group]
		if !known {
			before = r.began
		}
		r.gap, last[g.Group] = max(r.gap, time.Duration(g.returned-before)), g.returned
	}
	for _, at := range last {
		r.gap = max(r.gap, time.Duration(r.ended-at))
	}
}

// measureLife counts deletions of groups.
func (r *row) measureLife(op *operation) {
	switch {
	case op.Op == opDelete && op.result == resultOK:
		r.deleted++
	case op.Op == opDelete && op.result == resultRefused:
		r.notDeleted++
	case op.Op == opForce && op.result == resultOK:
		r.forced++
	}
}

func (r *row) measureSet(op *operation) {
	if !isSet(op) || !acquires(op) {
		return
	}
	r.sets++
	if len(op.Parts) > 1 {
		r.several++
	}
	if slices.ContainsFunc(op.Parts, func(p part) bool { return p.Shared }) {
		r.setsShared++
	}
}

// measureWork counts what was done of shards and jobs.
func (r *row) measureWork(op *operation) {
	switch {
	case op.Op == opReturn && op.result == resultMoved:
		r.moved++
	case op.Op == opRun && op.result == resultClosed:
		r.closed++
	case op.result != resultOK:
	case op.Op == opOwn:
		r.owned++
	case op.Every != 0:
		r.regular++
	case op.Op == opRun:
		r.runs++
	case op.Op == opEnd && op.Value == runDone:
		r.done++
	}
}

func (r *row) seconds() float64 { return max(time.Duration(r.ended-r.began).Seconds(), 0.001) }

func (r *row) summary() string {
	if r.unsupported != "" {
		return r.nemesis + ": " + r.unsupported
	}
	return fmt.Sprintf("%s: %d operations (%.0f per second), %d searches, %d unknown, %d violations",
		r.nemesis, r.operations, float64(r.operations)/r.seconds(), r.searches, len(r.verdict.unknown), len(r.violations))
}

// failover returns how many leaders died, and the median and the maximum of the time
// from there to the next grant.
func (r *row) failover() string {
	if len(r.failovers) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(r.failovers))
	return fmt.Sprintf("%d: %s / %s", len(sorted), short(sorted[len(sorted)/2]), short(sorted[len(sorted)-1]))
}

// short prints a time with the precision that it is worth.
func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// printTable prints a row for each nemesis.
func printTable(w io.Writer, rows []row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nnemesis\toperations\tper second\tunknown\tfailed\tlost\tgrants\tof these shared\tof sets\tended by MaxHold\textended\tshards owned\tmoved\ttaken over\truns of jobs\tdone\tErrJobDone\tgroups deleted\tby force\trefused\tlongest gap\tleader killed: to next grant\thealthy after\tMiB on disk / in memory before\tand after\tsearches ok\tgiven up\tstale writes refused\tviolations")
	for _, r := range rows {
		note := ""
		if r.unsupported != "" {
			note = " (no fault: not supported)"
		}
		fmt.Fprintf(t, "%s%s\t%d\t%.0f\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%v\t%v\t%d\t%d\t%d\t%d\n", r.nemesis, note,
			r.operations, float64(r.operations)/r.seconds(), r.unknown, r.failed, r.lost, r.grants, r.shared, r.sets, r.expired, r.extended,
			r.owned, r.moved, r.takenOver, r.runs, r.done, r.closed, r.deleted, r.forced, r.notDeleted, short(r.gap), r.failover(),
			short(r.recovery), r.before, r.after, r.passed(), len(r.verdict.unknown), r.refused, len(r.violations))
	}
	_ = t.Flush() // standard output
}

// passed is the number of searches that found a linearization.
func (r *row) passed() int {
	bad := 0
	for _, v := range r.violations {
		if strings.Contains(v, notLinearizable) {
			bad++
		}
	}
	return r.searches - len(r.verdict.unknown) - bad
}

// printFindings prints every violation, every search that was given up, and what could
// not run.
func printFindings(w io.Writer, rows []row) {
	for _, r := range rows {
		for _, v := range r.violations {
			fmt.Fprintf(w, "\nVIOLATION, %s: %s\n", r.nemesis, v)
		}
		if len(r.verdict.unknown) > 0 {
			fmt.Fprintf(w, "\n%s: searches given up after %v: %s\n", r.nemesis, searchLimit, strings.Join(r.verdict.unknown, ", "))
		}
		if r.unsupported != "" {
			fmt.Fprintf(w, "\n%s: %s\n", r.nemesis, r.unsupported)
		}
	}
}

func violated(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return len(r.violations) > 0 })
}
