package machine

// ends checks what is known of the holds that end in time.
func (a *auditor) ends() {
	n := 0
	check := func(of endable, owner *session) {
		b := of.bound()
		switch {
		case b == nil:
			return
		case owner == nil || b.of != of || !a.m.bounds.Contains(b):
			a.fail("%v: its end is not known, or it is not held", of.place())
		case b.requested < 0 || b.requested > a.m.now || b.ends <= b.requested || !(bounding{a.m}).hasMaxHold():
			a.fail("%v: it ends at %d, and was requested at %d", of.place(), b.ends, b.requested)
		}
		n++
	}
	for _, l := range a.m.locks.byName {
		if l.set() == nil {
			check(l, l.owner)
		}
		for _, sh := range a.m.sharesOf(l) {
			if sh.set() == nil {
				check(sh, sh.owner)
			}
		}
	}
	for _, s := range a.m.sets.byFence {
		check(s, s.session)
	}
	for _, l := range a.m.elections.byName {
		if l.bound() != nil {
			a.fail("leadership of %q ends in time", l.name())
		}
	}
	for _, s := range a.m.semaphores.byName {
		for _, p := range s.all() {
			check(p, p.owner)
		}
	}
	if n != a.m.bounds.Len() {
		a.fail("%d holds end in time, and %d are known", n, a.m.bounds.Len())
	}
	for _, b := range a.m.bounds.All() {
		if first := a.m.bounds.First(); byMaxHold(first, b) > 0 {
			a.fail("%v ends before %v, which is the first", b.of.place(), first.of.place())
		}
	}
}
