//go:build linux

package main

import (
	"maps"
	"math"
	"slices"
)

// life is what a history shows of one short-lived group: of an instance, or of a group under a name whose groups have one history, as far as
// one handle shows it. A group is created, sealed, and dropped; a later one of its name is created after that.
type life struct {
	name      string
	uses      []*operation // calls on handles to the group
	creations []*operation // those that have returned the handles
	first     *operation   // the grant with the smallest fence, nil: none
	last      *operation   // the grant with the largest fence, nil: none

	known   int64      // the group was created before this time
	knownBy *operation // the operation that shows it
	alive   int64      // the group was dropped after this time
	born    int64      // the group was created after this time
	sealed  ending     // refuses commands
	dropped ending     // creations and deletions do not find it any more
}

// ending bounds the time of an end.
type ending struct {
	at int64      // it was before this time; never: there may be none
	by *operation // the operation that shows it
}

func (e *ending) shown(at int64, by *operation) {
	if at < e.at {
		*e = ending{at, by}
	}
}

// livesOf returns the lives of short-lived groups, by the names that come into use again, in the order of their first use. What is known of a
// life without a use is no evidence.
func livesOf(ops []*operation) map[string][]*life {
	creations := make(map[string]*operation)
	for _, op := range ops {
		if op.Op == opCreate && op.result == resultOK && op.Handle != "" {
			creations[op.Handle] = op
		}
	}
	lives, of := make(map[string][]*life), make(map[[2]string]*life)
	for _, op := range ops {
		k := [2]string{op.Group, op.Handle}
		switch {
		case isForced(op.Group) && baseOf(op.Group) != op.Group:
			k[1] = "" // an instance has many handles
		case !isBrief(op.Group) || isForced(op.Group) || op.Handle == "":
			continue
		}
		if op.Op == opCreate {
			continue
		}
		l := of[k]
		if l == nil {
			l = &life{name: op.Group, known: never, alive: math.MinInt64, born: math.MinInt64, sealed: ending{at: never}, dropped: ending{at: never}}
			of[k] = l
			lives[baseOf(op.Group)] = append(lives[baseOf(op.Group)], l)
		}
		l.add(op, creations[op.Handle])
	}
	for name := range lives {
		lives[name] = slices.DeleteFunc(lives[name], func(l *life) bool { return len(l.uses) == 0 })
	}
	return lives
}

// add adds an operation that a client called when it had a handle to the group, which a creation has returned; nil: the history does not
// tell which.
func (l *life) add(op, created *operation) {
	if created != nil && !slices.Contains(l.creations, created) {
		l.creations = append(l.creations, created)
		l.alive = max(l.alive, created.Time)
		l.exists(created.returned, created)
	}
	l.exists(op.Time, op)
	if isDeletion(op) {
		return // it finds a group by its name: this one, or a later one
	}
	l.uses = append(l.uses, op)
	if commandAnswered(op) {
		l.alive = max(l.alive, op.Time)
	}
	if acquires(op) && op.result == resultOK {
		if l.first == nil || op.fence < l.first.fence {
			l.first = op
		}
		l.last = larger(l.last, op)
	}
}

func (l *life) exists(by int64, op *operation) {
	if by < l.known {
		l.known, l.knownBy = by, op
	}
}

func isDeletion(op *operation) bool { return op.Op == opDelete || op.Op == opForce }

// commandAnswered reports whether a group that was not sealed has answered a command. A member reads what a sealed group has until it has
// applied that the group is dropped.
func commandAnswered(op *operation) bool {
	return op.Op != opCheck && op.Op != opGet && (op.result == resultOK || op.result == resultRefused)
}

// deletionsOf returns the deletions of short-lived groups by name.
func deletionsOf(ops []*operation) map[string][]*operation {
	deletions := make(map[string][]*operation)
	for _, op := range ops {
		if isDeletion(op) {
			deletions[baseOf(op.Group)] = append(deletions[baseOf(op.Group)], op)
		}
	}
	return deletions
}

// lateDeletions returns the deletions that may take effect after a phase. They are without their handles: a process that runs on labels
// others alike in the next phase.
func lateDeletions(ops []*operation) (late []*operation) {
	for _, op := range ops {
		if isDeletion(op) && op.result == resultUnknown {
			d := *op
			d.Handle = ""
			late = append(late, &d)
		}
	}
	return late
}

// endsWithin reports whether a deletion may have sealed or dropped a group between two times. One with an unknown outcome may do so long after
// it has returned.
func endsWithin(d *operation, after, before int64) bool {
	return d.Time < before && (d.result == resultUnknown || d.result == resultOK && d.returned > after)
}

// precedes reports whether a group had the name before another one did. Groups have a name one after the other.
func (l *life) precedes(other *life) bool {
	return l != other && isForced(l.name) && baseOf(l.name) == baseOf(other.name) && l.known < other.alive
}

// bound bounds when the groups of one name were created and have ended.
func bound(lives []*life, deletions []*operation) {
	for _, l := range lives {
		for _, d := range deletions {
			if d.result != resultOK && d.result != resultNoGroup {
				continue
			}
			if d.Time >= l.known {
				l.dropped.shown(d.returned, d)
			}
			if d.returned <= l.alive { // it found an earlier one, or none
				l.born = max(l.born, d.Time)
			}
		}
		for _, other := range lives {
			if l.precedes(other) {
				l.dropped.shown(other.known, other.knownBy)
				other.born = max(other.born, l.alive)
			}
		}
		l.sealed = l.dropped
		for _, op := range l.uses {
			if op.result == resultNoGroup {
				l.sealed.shown(op.returned, op)
			}
		}
	}
}

// checkBrief checks the short-lived groups: one that has ended is not used any more, each one that has ended was deleted, and later ones grant
// larger fences.
func checkBrief(v *verdict, ops []*operation) {
	lives, deletions := livesOf(ops), deletionsOf(ops)
	var all []*life
	for _, name := range slices.Sorted(maps.Keys(lives)) {
		of := lives[name]
		bound(of, deletions[name])
		for _, l := range of {
			found := verdict{}
			l.checkUses(&found, deletions[name])
			v.add(l.name, found)
		}
		found := verdict{}
		checkDeletions(&found, of, deletions[name])
		v.add(name, found)
		all = append(all, of...)
	}
	checkEpochs(v, all)
}

// checkUses checks that a group does nothing after its deletion. Without force it had no holds then; those that are deleted with it are
// trusted until the deadlines of their sessions, by holders that are partitioned.
func (l *life) checkUses(v *verdict, deletions []*operation) {
	trusted := int64(0)
	if isForced(l.name) {
		trusted = int64(sessionTTL)
	}
	for _, c := range l.creations {
		if c.Time > l.dropped.at {
			v.violation("a creation has returned a handle to a deleted group: %v, then %v", l.dropped.by, c)
		}
	}
	for _, op := range l.uses {
		switch {
		case commandAnswered(op) && op.Time > l.sealed.at:
			v.violation("a deleted group has answered: %v, then %v", l.sealed.by, op)
		case op.Op == opCheck && op.result == resultOK && op.Time-trusted > l.sealed.at:
			v.violation("a hold outlasts its group: %v, then %v", l.sealed.by, op)
		case op.Op == opGet && (op.result == resultOK || op.result == resultAbsent):
			l.checkRead(v, op, deletions)
		}
	}
}

// checkRead checks that the process that has deleted a group reads nothing of it by the same handle: its member has removed the group.
func (l *life) checkRead(v *verdict, op *operation, deletions []*operation) {
	for _, d := range deletions {
		if d.Handle != "" && d.Handle == op.Handle && d.result == resultOK && op.Time > d.returned {
			v.violation("a group is read by the process that has deleted it: %v, then %v", d, op)
			return
		}
	}
}

// checkDeletions checks that the groups of a name that have ended were deleted. An instance has a key, so each one needs a deletion with force
// of its own.
func checkDeletions(v *verdict, lives []*life, deletions []*operation) {
	ends := make(map[*operation]*life) // the instance that a deletion ends
	for _, l := range lives {
		if l.sealed.at == never || l.explained(deletions, ends, make(map[*operation]bool)) {
			continue
		}
		switch {
		case !isForced(l.name):
			v.violation("a group has ended, and none was deleted: %v", l.sealed.by)
		case l.sealed.by.Op == opDelete && l.sealed.by.result == resultOK:
			v.violation("a group that holds a key was deleted without force: %s by %v", l.name, l.sealed.by)
		default:
			v.violation("a group that holds a key has ended, and was not deleted with force: %s before %v", l.name, l.sealed.by)
		}
	}
}

// explained reports whether a deletion may have ended the group. One that may have ended several instances ends one of them: the others
// need another one.
func (l *life) explained(deletions []*operation, ends map[*operation]*life, tried map[*operation]bool) bool {
	for _, d := range deletions {
		if tried[d] || !l.mayEndBy(d) {
			continue
		}
		if !isForced(l.name) {
			return true
		}
		tried[d] = true
		if other := ends[d]; other == nil || other.explained(deletions, ends, tried) {
			ends[d] = l
			return true
		}
	}
	return false
}

// mayEndBy reports whether a deletion may have ended the group. It must have found the group before it returned, also if it took effect later.
func (l *life) mayEndBy(d *operation) bool {
	return (d.Op == opForce || !isForced(l.name)) && endsWithin(d, l.alive, l.sealed.at) && d.returned > l.born
}

// checkEpochs checks that no group grants a fence that is not larger than each of a group that was dropped before it was created, under
// whatever name.
func checkEpochs(v *verdict, lives []*life) {
	granted := slices.DeleteFunc(lives, func(l *life) bool { return l.first == nil })
	for _, l := range granted {
		for _, before := range granted {
			if l.first.fence <= before.last.fence && (before.precedes(l) || before.dropped.at <= l.born) {
				v.violation("a later group grants a smaller fence: %v, then %v", before.last, l.first)
				break
			}
		}
	}
}
