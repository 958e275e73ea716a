//go:build linux

package main

import "slices"

// checkTaken checks what refused attempts to take a set say: they list a name; each listed one was held or requested by
// another owner at some time during the call, as far as the calls of all tell, and by the hold that is listed, if there is
// one; and one that is not listed was not held all the time.
func checkTaken(v *verdict, ops, single []*operation) {
	of, holds, ended := byName(single), holdsByName(single), endsOf(single)
	for _, op := range ops {
		if !isSet(op) || op.result != resultRefused {
			continue
		}
		if len(op.taken) == 0 {
			v.violation("a set was refused, and no name is taken: %v", op)
		}
		for _, p := range op.Parts {
			i := slices.IndexFunc(op.taken, func(t part) bool { return t.Name == p.Name })
			if i < 0 {
				if held := slices.IndexFunc(holds[p.Name], func(h *hold) bool { return h.throughout(op, p) }); held >= 0 {
					v.violation("a set was refused, but not for %s, which was held: %v, since %v", p.Name, op, holds[p.Name][held].grant)
				}
				continue
			}
			if !slices.ContainsFunc(of[p.Name], func(a *operation) bool { return ended.inTheWay(op, p, a) }) {
				v.violation("a set was refused without a reason, for %s: %v", p.Name, op)
			}
			if h := ended.released(op, op.taken[i], holds[p.Name], of[p.Name]); h != nil {
				v.violation("a set was refused for a hold that had been released: %v, by %v", op, h.grant)
			}
		}
	}
}

// released returns the hold that a refusal lists, if it had ended before the call. A shared phase may have others in it than
// is known.
func (e ends) released(set *operation, taken part, holds []*hold, of []*operation) (last *hold) {
	if taken.Fence == 0 {
		return nil
	}
	for _, h := range holds {
		if h.grant.fence != taken.Fence {
			continue
		}
		until, known := e[holdName{h.grant.Name, h.grant.Hold}]
		if !known || mayStay(h.grant) || until >= set.Time {
			return nil
		}
		last = h
	}
	if taken.Shared && slices.ContainsFunc(of, func(a *operation) bool { return grantsShared(a) && a.result != resultOK }) {
		return nil
	}
	return last
}

func holdsByName(single []*operation) map[string][]*hold {
	names := make(map[string][]*hold)
	for _, h := range holdsOf(single) {
		names[h.grant.Name] = append(names[h.grant.Name], h)
	}
	return names
}

// throughout reports whether a hold certainly kept a set from a name during the whole call.
func (h *hold) throughout(set *operation, p part) bool {
	return (!p.Shared || !h.shared()) && h.grant.Hold != set.Hold && h.grant.returned < set.Time && h.last.Time > set.returned
}

// holdName names a hold of one name.
type holdName struct{ name, hold string }

// ends has when holds had certainly ended: they were released, or another one was granted that excludes them. Others may have
// stayed: they were lost, or their release has no known outcome, or their request is withdrawn in the background.
type ends map[holdName]int64

func endsOf(single []*operation) ends {
	left, last, failed := make(map[holdName]int), make(ends), make(map[holdName]bool)
	for _, op := range single {
		k := holdName{op.Name, op.Hold}
		switch {
		case takes(op) && op.result == resultOK:
			left[k]++
		case takes(op) && op.result != resultRefused:
			failed[k] = true
		case releases(op) && op.result == resultOK:
			left[k]--
			last[k] = max(last[k], op.returned)
		}
	}
	for name, holds := range holdsByName(single) {
		for _, h := range holds {
			if k := (holdName{name, h.grant.Hold}); left[k] > 0 {
				last[k] = h.replaced(holds)
			}
		}
	}
	for k := range failed {
		delete(last, k)
	}
	return last
}

// replaced returns when the next hold of the name that excludes this one was there.
func (h *hold) replaced(holds []*hold) int64 {
	at := int64(never)
	for _, next := range holds {
		if next.grant.fence > h.grant.fence && !(h.shared() && next.shared()) {
			at = min(at, next.grant.returned)
		}
	}
	return at
}

func takes(op *operation) bool { return acquires(op) || op.Op == opRLock || op.Op == opTryRLock }

func releases(op *operation) bool { return op.Op == opUnlock || op.Op == opRUnlock }

// inTheWay reports whether an acquisition may have kept a set from a name: it held the name, or waited for it, at some time
// during the call. Of those that want a name shared as the set does, single ones that wait before the set do.
func (e ends) inTheWay(set *operation, p part, a *operation) bool {
	if !takes(a) || a.result == resultRefused || a.Hold == set.Hold || a.Time > set.returned {
		return false
	}
	until, known := e[holdName{a.Name, a.Hold}]
	switch {
	case p.Shared && !acquires(a) && a.whole != nil:
		return false
	case p.Shared && !acquires(a) && a.result == resultOK:
		until = a.returned
	case !known || mayStay(a):
		until = never
	}
	return until >= set.Time
}

// mayStay reports whether a process may keep what an acquisition was granted, after its release.
func mayStay(a *operation) bool {
	return a.whole == nil && (lingers(a) || inBothModes(a) && !acquires(a))
}
