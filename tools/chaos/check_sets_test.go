//go:build linux

package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// in adds an operation on a set that returned ok. The fences of parts are those before a check or a release, and after an
// acquisition; fence is that of the set.
func (s *story) in(op, hold string, call, returned int64, fence uint64, parts ...part) *operation {
	r := record{Op: op, Hold: hold, Fence: fence}
	for _, p := range parts {
		if op == opLock || op == opTry {
			p.Fence = 0
		}
		r.Parts = append(r.Parts, p)
	}
	if op == opLock || op == opTry {
		r.Fence = 0
	}
	added := s.add(hold, call, returned, r, resultOK, fence)
	added.parts = parts
	if op == opUnlock || op == opExtend {
		added.fence, added.parts = 0, nil
	}
	return added
}

// tried adds an attempt to take a set that was refused.
func (s *story) tried(hold string, call, returned int64, taken []string, parts ...part) *operation {
	op := s.add(hold, call, returned, record{Op: opTry, Hold: hold, Parts: parts}, resultRefused, 0)
	for _, name := range taken {
		op.taken = append(op.taken, part{Name: name})
	}
	return op
}

// tale is a history with what is wrong with it, as expectVerdict has it.
type tale struct {
	name, want string
	tell       func(s *story)
}

func expectTales(t *testing.T, tales []tale) {
	t.Helper()
	for _, c := range tales {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.tell(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

const both1, both2 = "p/shared/1", "p/shared/2"

// only is a name of a set that it takes exclusively, and with one that it takes shared.
func only(name string, fence uint64) part { return part{Name: name, Fence: fence} }
func with(name string, fence uint64) part { return part{Name: name, Shared: true, Fence: fence} }

func TestCheckSets(t *testing.T) {
	expectTales(t, []tale{
		{"sets and single locks, one after the other", "", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.in(opLock, "b", 2, 6, 2, only("l", 2), only("m", 2))
			s.on(opUnlock, "a", 3, 5, 1)
			s.in(opCheck, "b", 7, 8, 2, only("l", 2), only("m", 2))
			s.in(opExtend, "b", 9, 10, 2, only("l", 2), only("m", 2))
			s.in(opUnlock, "b", 11, 12, 2, only("l", 2), only("m", 2))
			s.in(opTry, "c", 13, 14, 3, only("m", 3), only("n", 3))
			s.lock("d", 13, 15, 4)
		}},
		{"joins a phase, begins another one, and others join that", "", func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.in(opLock, "b", 3, 4, 2, only("l", 2), with(both1, 1), with(both2, 2))
			s.add("c", 5, 6, record{Op: opRLock, Name: both2, Hold: "c"}, resultOK, 2)
			s.in(opLock, "d", 5, 7, 3, with(both1, 1), with(both2, 2))
			s.in(opUnlock, "b", 8, 9, 2, only("l", 2), with(both1, 1), with(both2, 2))
			s.in(opCheck, "d", 10, 11, 3, with(both1, 1), with(both2, 2))
			s.in(opUnlock, "d", 12, 13, 3, with(both1, 1), with(both2, 2))
		}},
		{"two phases began with a set that never returned", "", func(s *story) {
			s.add("a", 1, never, record{Op: opLock, Hold: "a", Parts: []part{with(both1, 0), with(both2, 0)}}, resultUnknown, 0)
			s.both(opRLock, "b", 2, 3, 0, 1)
			s.add("c", 4, 5, record{Op: opRLock, Name: both2, Hold: "c"}, resultOK, 1)
		}},
		{"lost before the fence of a shared name was read", "", func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("l", 1), with(both1, 0))
			s.add("a", 3, 4, record{Op: opCheck, Hold: "a", Fence: 1, Parts: []part{only("l", 1), with(both1, 0)}}, resultLost, 0)
			s.lock("b", 5, 6, 2)
		}},
		{"lost, and granted to others", "", func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("l", 1), only("m", 1))
			s.in(opCheck, "a", 3, 4, 1, only("l", 1), only("m", 1))
			s.lock("b", 3, 6, 2)
			s.add("a", 7, 8, record{Op: opUnlock, Hold: "a", Fence: 1, Parts: []part{only("l", 1), only("m", 1)}}, resultLost, 0)
		}},
		{"of a lock that lingers", "", func(s *story) {
			s.lock("a", 1, 2, 20)
			s.add("b", 3, 4, record{Op: opLock, Name: "p/lingering/1", Hold: "b"}, resultOK, 6)
			s.add("b", 5, 6, record{Op: opUnlock, Name: "p/lingering/1", Hold: "b", Fence: 6}, resultOK, 0)
			s.in(opLock, "c", 7, 8, 21, only("p/lingering/1", 21))
		}},
	})
}

func TestCheckSets_Exclusion(t *testing.T) {
	expectTales(t, []tale{
		{"a single grant beside a set, of its second name", notLinearizable, func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("m", 1), only("l", 1))
			s.lock("b", 3, 4, 2)
			s.in(opCheck, "a", 5, 6, 1, only("m", 1), only("l", 1))
		}},
		{"a set beside a single hold, seen by its release", notLinearizable, func(s *story) {
			s.lock("a", 1, 2, 1)
			s.in(opLock, "b", 3, 4, 2, only("m", 2), only("l", 2))
			s.on(opUnlock, "a", 5, 6, 1)
		}},
		{"two sets with a common name", notLinearizable, func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("l", 1), only("m", 1))
			s.in(opLock, "b", 3, 4, 2, only("m", 2), only("n", 2))
			s.in(opUnlock, "a", 5, 6, 1, only("l", 1), only("m", 1))
		}},
		{"a writer beside a shared name", notLinearizable, func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("l", 1), with(both1, 1))
			s.both(opLock, "b", 3, 4, 0, 2)
			s.in(opCheck, "a", 5, 6, 1, only("l", 1), with(both1, 1))
		}},
		{"an exclusive name beside a reader", notLinearizable, func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.in(opLock, "b", 3, 4, 2, only(both1, 2))
			s.both(opRCheck, "a", 5, 6, 1, 1)
		}},
		{"a shared name has not the fence of the phase", notLinearizable, func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.in(opLock, "b", 3, 4, 2, with(both1, 2))
			s.both(opRCheck, "a", 5, 6, 1, 1)
		}},
		{"released one name only", notLinearizable, func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("l", 1), only("m", 1))
			s.in(opUnlock, "a", 3, 4, 1, only("l", 1), only("m", 1))
			s.add("b", 5, 6, record{Op: opTry, Name: "m", Hold: "b"}, resultRefused, 0)
		}},
		{"extended after its loss", notLinearizable, func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("l", 1), only("m", 1))
			s.lock("b", 3, 4, 2)
			s.in(opExtend, "a", 5, 6, 1, only("l", 1), only("m", 1))
		}},
	})
}

func TestCheckSets_Fences(t *testing.T) {
	expectTales(t, []tale{
		{"a smaller fence later", "smaller fence", func(s *story) {
			s.lock("a", 1, 2, 7)
			s.in(opLock, "b", 3, 4, 6, only("m", 6))
		}},
		{"a smaller fence than of another lock, for one that lingers", "smaller fence", func(s *story) {
			s.lock("a", 1, 2, 7)
			s.in(opLock, "b", 3, 4, 6, only("p/lingering/1", 6))
		}},
		{"the fence of another set", "granted twice", func(s *story) {
			s.in(opLock, "a", 1, 9, 1, only("l", 1), only("m", 1))
			s.in(opLock, "b", 2, 8, 1, only("n", 1), with(both1, 1))
		}},
		{"the fence of a single lock", "granted twice", func(s *story) {
			s.lock("a", 1, 4, 1)
			s.in(opLock, "b", 2, 3, 1, only("m", 1), with(both1, 1))
		}},
		{"readers of two locks have one fence, and the set with both is older", "granted twice", func(s *story) {
			s.in(opLock, "a", 1, 2, 1, with(both1, 1), with(both2, 1))
			s.in(opUnlock, "a", 3, 4, 1, with(both1, 1), with(both2, 1))
			s.both(opRLock, "b", 5, 6, 0, 2)
			s.add("c", 5, 6, record{Op: opRLock, Name: both2, Hold: "c"}, resultOK, 2)
		}},
		{"two fences of exclusive names", "not that of the grant", func(s *story) {
			s.in(opLock, "a", 1, 2, 2, only("l", 2), only("m", 1))
		}},
		{"a phase that begins after the grant", "not that of the grant", func(s *story) {
			s.in(opLock, "a", 1, 2, 2, only("l", 2), with(both1, 3))
		}},
		{"not held", "not held", func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("l", 1))
			s.add("a", 3, 4, record{Op: opUnlock, Hold: "a", Fence: 1, Parts: []part{only("l", 1)}}, resultNotHeld, 0)
		}},
	})
}

// Each lock alone has a linearization, but no point is that of the grant on all names.
func TestCheckTogether(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(s *story, later int64)
	}{
		{"exclusive names", func(s *story, later int64) {
			s.lock("a", 1, 2, 1)
			s.in(opLock, "b", 3, 20, 2, only("l", 2), only("m", 2))
			s.on(opUnlock, "a", 15, 16, 1)
			s.add("c", 3, later, record{Op: opLock, Name: "m", Hold: "c"}, resultOK, 3)
		}},
		{"the holder in the way is another set", func(s *story, later int64) {
			s.in(opLock, "a", 1, 2, 1, only("n", 1), only("l", 1))
			s.in(opLock, "b", 3, 20, 2, only("l", 2), only("m", 2))
			s.in(opCheck, "a", 15, 16, 1, only("n", 1), only("l", 1))
			s.in(opLock, "c", 3, later, 3, only("m", 3), only("o", 3))
		}},
		{"shared names, after a writer", func(s *story, later int64) {
			s.both(opLock, "a", 1, 2, 0, 1)
			s.in(opLock, "b", 3, 20, 2, with(both1, 2), with(both2, 2))
			s.both(opCheck, "a", 15, 16, 1, 1)
			s.add("c", 3, later, record{Op: opLock, Name: both2, Hold: "c"}, resultOK, 3)
		}},
		{"a reader joins the phase of the set too early", func(s *story, later int64) {
			s.lock("a", 1, 2, 1)
			s.in(opLock, "b", 3, 20, 2, only("l", 2), with(both1, 2))
			s.on(opCheck, "a", 15, 16, 1)
			s.both(opRLock, "c", 4, later, 0, 2)
		}},
		{"through a third set", func(s *story, later int64) {
			s.lock("a", 1, 2, 1)
			s.in(opLock, "b", 3, 20, 2, only("l", 2), only("m", 2))
			s.on(opCheck, "a", 15, 16, 1)
			s.in(opLock, "c", 3, 20, 3, only("m", 3), only("n", 3))
			s.add("d", 3, later, record{Op: opLock, Name: "n", Hold: "d"}, resultOK, 4)
		}},
	} {
		for later, want := range map[int64]string{10: "no point for a grant", 18: ""} {
			var s story
			c.tell(&s, later)
			t.Run(c.name, func(t *testing.T) { expectVerdict(t, s.ops, nil, want) })
		}
	}
}

// A phase does not go on after another grant of the name, which a set cannot join then.
func TestCheckTogether_PhaseEnded(t *testing.T) {
	var s story
	s.both(opRLock, "a", 1, 2, 0, 1)
	s.both(opLock, "b", 3, 9, 0, 2)
	s.in(opLock, "c", 4, 10, 3, only("l", 3), with(both1, 1))
	expectVerdict(t, s.ops, nil, "joined a phase after")
}

func TestCheckSets_Ends(t *testing.T) {
	const at = int64(time.Second)
	var s story
	s.in(opLock, "a", 1*at, 2*at, 1, only("l", 1), only("m", 1)).MaxHold = 10 * time.Second
	check := record{Op: opCheck, Hold: "a", Fence: 1, Parts: []part{only("l", 1), only("m", 1)}}
	expired := s.add("a", 12*at, 12*at+1, check, resultExpired, 0)
	expectVerdict(t, s.ops, nil, "")
	expired.Time, expired.returned = 9*at, 9*at+1
	expectVerdict(t, s.ops, nil, "early")
	expired.Time, expired.returned = 12*at, 12*at+1
	s.in(opCheck, "a", 13*at, 14*at, 1, only("l", 1), only("m", 1))
	expectVerdict(t, s.ops, nil, "is live after")
}

// The names of a set have one fence at the resource, and those that share a name with it have that too.
func TestCheckSets_Resource(t *testing.T) {
	var s story
	s.in(opLock, "a", 1, 2, 1, only("l", 1), only("m", 1), with(both1, 1))
	s.both(opRLock, "b", 3, 4, 0, 1)
	writes := []write{
		{Time: 5, Name: "l", Hold: "a", Fence: 1, Accepted: true},
		{Time: 6, Name: "m", Hold: "a", Fence: 1, Accepted: true},
		{Time: 7, Name: both1, Hold: "b", Fence: 1, Accepted: true},
	}
	expectVerdict(t, s.ops, writes, "")
	other := append(slices.Clone(writes), write{Time: 8, Name: "m", Hold: "c", Fence: 1, Accepted: true})
	expectVerdict(t, s.ops, other, "from two holds")
	s.add("d", 7, 9, record{Op: opLock, Name: "m", Hold: "d"}, resultOK, 2)
	late := append(slices.Clone(writes), write{Time: 10, Name: "m", Hold: "d", Fence: 2, Accepted: true}, write{Time: 11, Name: "m", Hold: "a", Fence: 1})
	expectVerdict(t, s.ops, late, "")
	s.in(opCheck, "a", 12, 13, 1, only("l", 1), only("m", 1), with(both1, 1))
	expectVerdict(t, s.ops, late, "confirmed by its holder")
}

// A run whose clients took no set has shown nothing of them, nor has one with sets of one name, or without shared names.
func TestCheckSetGrants(t *testing.T) {
	for _, c := range []struct {
		row  row
		want bool // fine
	}{
		{row{grants: enoughForSets - 1}, true},
		{row{grants: enoughForSets, several: 1, setsShared: 1}, true},
		{row{grants: enoughForSets, several: 1}, false},
		{row{grants: enoughForSets, setsShared: 1}, false},
	} {
		var v verdict
		if checkSetGrants(&v, &c.row); (len(v.violations) == 0) != c.want {
			t.Errorf("%+v: %v", c.row, v.violations)
		}
	}
	var s story
	s.in(opLock, "a", 1, 2, 1, only("l", 1))
	s.in(opTry, "b", 1, 2, 2, only("m", 2), with(both1, 2))
	s.in(opCheck, "b", 1, 2, 2, only("m", 2), with(both1, 2))
	s.tried("c", 1, 2, []string{"m"}, only("m", 0), with(both1, 0))
	var r row
	if r.measure(s.ops, nil); r.grants != 2 || r.sets != 2 || r.several != 1 || r.setsShared != 1 {
		t.Errorf("%+v", r)
	}
}

// Each set that the clients take has some of these names, each once, and there are sets of all kinds.
func TestParts(t *testing.T) {
	c := &client{load: &load{phase: "p", process: &memberProcess{groups: []string{""}}}, random: rand.New(rand.NewPCG(1, 2))}
	sizes, modes := make(map[int]bool), make(map[bool]bool)
	for range 200 {
		seen := make(map[string]bool)
		for _, p := range c.parts() {
			if seen[p.Name] || p.Shared && !inBothModes(&operation{record: record{Name: p.Name}}) {
				t.Errorf("unexpected name %+v", p)
			}
			seen[p.Name], modes[p.Shared] = true, true
		}
		sizes[len(seen)] = true
	}
	if len(sizes) != mostNames || len(modes) != 2 {
		t.Errorf("sizes %v, modes %v", sizes, modes)
	}
}
