//go:build linux

package main

import (
	"maps"
	"slices"
)

// groupStory is what is known of one group: of a forced group, of one instance.
type groupStory struct {
	name   string
	ops    []*operation
	writes []write
}

// byGroup partitions a history, in the order of the groups' names.
func byGroup(ops []*operation, writes []write) []*groupStory {
	stories := make(map[string]*groupStory)
	of := func(group string) *groupStory {
		if stories[group] == nil {
			stories[group] = &groupStory{name: group}
		}
		return stories[group]
	}
	for _, op := range ops {
		if op.Op != opCreate && !isDeletion(op) { // these are checked by name, in checkBrief
			g := of(op.Group)
			g.ops = append(g.ops, op)
		}
	}
	for _, w := range writes {
		g := of(w.Group)
		g.writes = append(g.writes, w)
	}
	var all []*groupStory
	for _, name := range slices.Sorted(maps.Keys(stories)) {
		all = append(all, stories[name])
	}
	return all
}

// byGroupAndName partitions the operations of all groups.
func byGroupAndName(ops []*operation) map[[2]string][]*operation {
	names := make(map[[2]string][]*operation)
	for _, op := range ops {
		k := [2]string{op.Group, op.Name}
		names[k] = append(names[k], op)
	}
	return names
}

// add adds what was found in a group.
func (v *verdict) add(group string, of verdict) {
	v.refused += of.refused
	for _, text := range of.violations {
		if group != defaultGroup {
			text = "in group " + group + ": " + text
		}
		v.violations = append(v.violations, text)
	}
}

// checkFound finds groups that were never deleted, and were not found. checkBrief does so for short-lived ones.
func checkFound(v *verdict, g *groupStory) {
	if isBrief(g.name) {
		return
	}
	for _, op := range g.ops {
		if op.result == resultNoGroup {
			v.violation("a group that exists was not found: %v", op)
		}
	}
}

// checkForced checks what the forced groups of one name have together. The holders of an instance that are partitioned trust their holds
// until their deadline, so instances exclude each other by their fences only.
func checkForced(v *verdict, stories []*groupStory, largest map[string]uint64) {
	names := make(map[string]*groupStory)
	for _, g := range stories {
		if !isForced(g.name) {
			continue
		}
		base := baseOf(g.name)
		if names[base] == nil {
			names[base] = &groupStory{name: base}
		}
		all := names[base]
		all.ops, all.writes = append(all.ops, g.ops...), append(all.writes, g.writes...)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all, found := names[name], verdict{}
		slices.SortStableFunc(all.ops, func(a, b *operation) int { return compare(a.Time, b.Time) })
		checkFences(&found, all.ops, largest[name])
		checkResource(&found, nil, all.writes)
		v.add(name, found)
	}
}

// checkCreations checks that a group which was created was found, unless a deletion of that name was under way at the same time.
func checkCreations(v *verdict, ops []*operation) {
	deletions := deletionsOf(ops)
	for _, op := range ops {
		if op.Op == opCreate && op.result == resultNoGroup && !slices.ContainsFunc(deletions[baseOf(op.Group)], func(d *operation) bool {
			return endsWithin(d, op.Time, op.returned)
		}) {
			v.violation("a group was created and not found, although none was deleted: %v", op)
		}
	}
}

// enoughDeletions is how many deletions have all results among them, with certainty.
const enoughDeletions = 60

// checkLives reports a load that did not delete groups in both ways, or met no refusal, since the checks of deletions find nothing then.
func checkLives(v *verdict, r *row) {
	if all := r.deleted + r.forced + r.notDeleted; all >= enoughDeletions && (r.deleted == 0 || r.forced == 0 || r.notDeleted == 0) {
		v.violation("of %d deletions of groups %d were without force, %d with force, and %d were refused: want some of each", all, r.deleted, r.forced, r.notDeleted)
	}
}

// largestFences returns the largest fence that each group has granted, by name.
func largestFences(ops []*operation) map[string]uint64 {
	largest := make(map[string]uint64)
	for _, op := range ops {
		group := baseOf(op.Group)
		largest[group] = max(largest[group], op.fence)
	}
	return largest
}
