//go:build linux

package main

import "fmt"

// keyRuns is what is known of the runs of a key.
type keyRuns struct {
	runs []*operation
	ends map[uint64]*operation // by fence: the ends of the runs
	done map[uint64]string     // by fence: which runs the group has recorded as done, and how that is known
}

// checkJobs checks the runs of each key. That no two were under way at a time the searches find, in which a run is a hold.
func checkJobs(v *verdict, ops []*operation) {
	keys := make(map[string]*keyRuns)
	var closed []*operation
	for _, op := range ops {
		if op.Op != opRun && op.Op != opEnd || op.Every != 0 {
			continue
		}
		k := keys[op.Name]
		if k == nil {
			k = &keyRuns{ends: make(map[uint64]*operation), done: make(map[uint64]string)}
			keys[op.Name] = k
		}
		switch {
		case op.Op == opEnd:
			k.ends[op.Fence] = op
			if op.result == resultOK && op.Value == runDone {
				k.done[op.Fence] = op.String()
			}
		case op.result == resultOK:
			k.runs = append(k.runs, op)
		case op.result == resultClosed:
			closed = append(closed, op)
			if op.value == runDone {
				k.done[op.fence] = op.String()
			}
		}
	}
	for _, op := range closed {
		checkClosed(v, keys[op.Name], op)
	}
	for name, k := range keys {
		k.check(v, name)
	}
}

// check checks that the key ran to its end once at most, never again after that, and not more often than it may.
func (k *keyRuns) check(v *verdict, name string) {
	if len(k.done) > 1 {
		v.violation("%s ran to its end more than once: %v", name, k.done)
	}
	for _, r := range k.runs {
		for fence, how := range k.done {
			if r.fence > fence {
				v.violation("%s runs again after it ran to its end: %v, after %s", name, r, how)
			}
		}
		if r.Limit > 0 && len(k.runs) > r.Limit {
			v.violation("%s ran %d times, want %d at most: %v", name, len(k.runs), r.Limit, r)
			break
		}
	}
}

// checkClosed checks that a refusal is explained by a run that has ended as it is described.
func checkClosed(v *verdict, k *keyRuns, op *operation) {
	end := k.ends[op.fence]
	var why string
	switch {
	case op.value == runDone && (end == nil || end.Value != runDone || end.Time > op.returned):
		why = "a run that did not reach its end"
	case op.value == runDone:
	case op.Limit == 0:
		why = "a run that was " + op.value + ", although attempts are without bound"
	case op.value != runFailed && op.value != "lost":
		why = "a run that is " + op.value
	case end != nil && end.result == resultOK && end.Value != op.value:
		why = fmt.Sprintf("a run that was %s, and not %s", end.Value, op.value)
	}
	if why != "" {
		v.violation("a key is closed by %s: %v", why, op)
	}
}
