//go:build linux

package main

// checkResource checks what the resource has recorded: accepted fences of a name never
// decrease, a fence is that of one hold or of those that share a lock or began with one set, and a hold whose write was refused, since a
// later holder was there before, is not confirmed by its own clock afterwards.
func checkResource(v *verdict, ops []*operation, writes []write) {
	last, holds := make(map[string]write), make(map[uint64]write)
	type grant struct {
		name  string
		fence uint64
	}
	refused := make(map[grant]int64)
	phases, sets := make(map[grant]bool), beginnersOf(ops)
	for _, op := range ops {
		if op.result == resultOK && grantsShared(op) {
			phases[grant{op.Name, op.fence}] = true
		}
	}
	of := func(w write) use { return use{w.Name, w.Hold, phases[grant{w.Name, w.Fence}], w.Time} }
	for _, w := range writes {
		other, ok := holds[w.Fence]
		if ok && other.Hold != w.Hold && !(other.Name == w.Name && of(w).joined) && !sets.gave(w.Fence, of(other), of(w)) {
			v.violation("fence %d came to the resource from two holds: %+v and %+v", w.Fence, other, w)
		}
		holds[w.Fence] = w
		before := last[w.Name]
		switch {
		case !w.Accepted:
			v.refused++
			if w.Fence >= before.Fence {
				v.violation("the resource refused a fence that is not stale: %+v after %+v", w, before)
			}
			if _, known := refused[grant{w.Name, w.Fence}]; !known {
				refused[grant{w.Name, w.Fence}] = w.Time
			}
		case w.Fence < before.Fence:
			v.violation("the resource accepted a write against the order of fences: %+v after %+v", w, before)
		default:
			last[w.Name] = w
		}
	}
	for _, op := range ops {
		if op.Op != opCheck && op.Op != opRCheck || op.result != resultOK {
			continue
		}
		if at, stale := refused[grant{op.Name, op.fence}]; stale && op.Time > at {
			v.violation("a hold is confirmed by its holder after a later holder has written: %v; refused at %d", op, at)
		}
	}
}
