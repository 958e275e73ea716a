//go:build linux

package main

import (
	"cmp"
	"slices"
)

// checkSets checks that the fences of a set are those of one grant: that of the set for each exclusive name, and no larger
// one for a shared name.
func checkSets(v *verdict, ops []*operation) {
	for _, op := range ops {
		if !isSet(op) || op.result != resultOK || op.fence == 0 {
			continue
		}
		if len(op.parts) != len(op.Parts) {
			v.violation("a set has %d names, and fences of %d: %v", len(op.Parts), len(op.parts), op)
		}
		for _, p := range op.parts {
			if p.Fence > op.fence || !p.Shared && p.Fence != op.fence {
				v.violation("a name of a set has a fence that is not that of the grant: %v", op)
				break
			}
		}
	}
}

// hold is what one grant has given of one name, in one mode.
type hold struct {
	grant *operation
	last  *operation // the last operation that found it held
}

func (h *hold) shared() bool { return grantsShared(h.grant) }

// holdsOf returns the holds, in the order of the calls. ops are those on single locks.
func holdsOf(ops []*operation) []*hold {
	type key struct{ name, hold string }
	var all []*hold
	present := make(map[key]*hold)
	for _, op := range ops {
		k := key{op.Name, op.Hold}
		h := present[k]
		switch {
		case op.result != resultOK:
			continue
		case h != nil: // also a downgrade finds it held
			h.last = op
		}
		if op.fence != 0 && op.Holds == 0 && (acquires(op) || grantsShared(op)) {
			present[k] = &hold{op, op}
			all = append(all, present[k])
		}
	}
	return all
}

// checkTogether checks what the searches cannot, which look at one lock at a time: that there is one point for each grant at
// which it can have taken effect for all its names. The group's fences order these points. A grant has to follow its call, the
// grants before it, and each operation that found an earlier hold in its way still held, on any of its names; if the first of
// these was called after the grant had returned, there is no such point.
func checkTogether(v *verdict, ops []*operation) {
	all := holdsOf(ops)
	slices.SortStableFunc(all, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(drawn(a), drawn(b)), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.grant.Time, b.grant.Time), cmp.Compare(a.grant.Hold, b.grant.Hold))
	})
	t := timeline{names: make(map[string]*uses)}
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[0].grant.whole != nil && all[n].grant.whole == all[0].grant.whole {
			n++
		}
		t.grant(v, all[:n])
		all = all[n:]
	}
}

// drawn is the fence that a grant has drawn: with a set, which may have joined earlier phases, its own one.
func drawn(h *hold) uint64 {
	if set := h.grant.whole; set != nil {
		return set.fence
	}
	return h.grant.fence
}

// rank sorts holds that have joined a phase behind the one that began it.
func rank(h *hold) int {
	if joins(h.grant) {
		return 1
	}
	return 0
}

// joins reports whether a grant may have an earlier fence than its own.
func joins(grant *operation) bool {
	return grant.whole == nil && (grant.Op == opRLock || grant.Op == opTryRLock)
}

// point is a time that something has to follow, with what was called then.
type point struct {
	at int64
	op *operation
}

func (p point) after(q point) point {
	if q.at > p.at {
		return q
	}
	return p
}

// timeline has the earliest points of the grants so far.
type timeline struct {
	last  point // of the grants of the group
	names map[string]*uses
}

// uses is what is known of a name: the last points at which it was held, and the fence of the last grant in either mode.
type uses struct {
	exclusive, shared point
	ended             uint64 // a phase with a smaller fence has ended
}

// grant checks the next grant: of a single lock, or of all names of a set.
func (t *timeline) grant(v *verdict, parts []*hold) {
	g := parts[0].grant
	whole := g
	if g.whole != nil {
		whole = g.whole
	}
	earliest := point{g.Time, g}
	if !local(g) {
		earliest = earliest.after(t.last)
	}
	for _, h := range parts {
		u := t.names[h.grant.Name]
		if u == nil {
			u = new(uses)
			t.names[h.grant.Name] = u
		}
		if earliest = earliest.after(u.exclusive); !h.shared() {
			earliest = earliest.after(u.shared)
		}
		if h.grant.fence < u.ended {
			v.violation("a set has joined a phase after another grant of the name, with fence %d: %v", u.ended, whole)
		}
	}
	if earliest.at > g.returned {
		v.violation("no point for a grant: %v returned before the call of %v, which it has to follow", whole, earliest.op)
	}
	if !local(g) && !joins(g) {
		t.last = earliest
	}
	for _, h := range parts {
		t.names[h.grant.Name].add(h, earliest)
	}
}

// add notes a hold that was granted at this point or later.
func (u *uses) add(h *hold, granted point) {
	until := granted.after(point{h.last.Time, h.last})
	if h.shared() {
		u.shared = u.shared.after(until)
	} else {
		u.exclusive = u.exclusive.after(until)
	}
	u.ended = max(u.ended, h.grant.fence)
}

// enoughForSets is how many grants have sets of several names and sets with shared names among them, with certainty.
const enoughForSets = 200

// checkSetGrants reports a load without these, since the checks of sets find nothing then.
func checkSetGrants(v *verdict, r *row) {
	if r.grants >= enoughForSets && (r.several == 0 || r.setsShared == 0) {
		v.violation("of %d grants %d were of sets with several names, and %d of sets with shared ones: want some of each", r.grants, r.several, r.setsShared)
	}
}
