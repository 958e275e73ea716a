//go:build linux

package main

import "time"

// checkEnds checks the holds that end in time: only those with MaxHold, no earlier than a holder may tell by its clock,
// and from then on.
func checkEnds(v *verdict, ops []*operation) {
	earliest := make(map[string]int64) // when a hold may end, as far as the calls before say
	expired := make(map[string]*operation)
	for _, op := range ops {
		if end, known := earliest[op.Hold]; op.MaxHold != 0 && (!known || op.Op == opExtend) { // to lock again does not move it
			after := op.Time + int64(op.MaxHold-op.MaxHold/50)
			if known {
				after = min(end, after)
			}
			earliest[op.Hold] = after
		}
		before := expired[op.Hold]
		switch {
		case op.Hold == "":
		case op.result != resultExpired:
			if op.result == resultOK && before != nil && op.Time > before.returned {
				v.violation("a hold is live after it has reached its MaxHold: %v, then %v", before, op)
			}
		case earliest[op.Hold] == 0:
			v.violation("a hold without MaxHold has reached it: %v", op)
		case op.returned < earliest[op.Hold]:
			v.violation("a hold has reached its MaxHold %v early: %v", time.Duration(earliest[op.Hold]-op.returned), op)
		case before == nil || op.returned < before.returned:
			expired[op.Hold] = op
		}
	}
}

// checkLimits reports a load in which no hold ended by its MaxHold, or none was extended, since checkEnds finds nothing then.
func checkLimits(v *verdict, r *row) {
	if r.grants >= enoughForModes && (r.expired == 0 || r.extended == 0) {
		v.violation("of %d grants %d ended by MaxHold and %d were extended: want some of each", r.grants, r.expired, r.extended)
	}
}
