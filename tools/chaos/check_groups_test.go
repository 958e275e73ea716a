//go:build linux

package main

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave"
)

// inGroup moves what a function adds to a story to a group.
func (s *story) inGroup(group string, add func()) {
	n := len(s.ops)
	add()
	for _, op := range s.ops[n:] {
		op.Group = group
	}
}

// life adds a creation or a deletion of a group.
func (s *story) life(group, op string, call, returned int64, result string) {
	s.inGroup(group, func() { s.add("p", call, returned, record{Op: op}, result, 0) })
}

// Two groups grant the same names, with fences and indexes of their own.
func TestCheckGroups_SameNames(t *testing.T) {
	for _, c := range []struct {
		name, want string
		build      func(s *story)
	}{
		{"a lock in each of two groups", "", func(s *story) {
			s.inGroup("further-1", func() { s.lock("a", 1, 2, 7); s.on(opCheck, "a", 7, 8, 7) })
			s.inGroup("further-2", func() { s.lock("b", 3, 4, 7); s.on(opCheck, "b", 5, 6, 7) })
			s.lock("c", 3, 4, 1)
			s.on(opCheck, "c", 5, 6, 1)
		}},
		{"one in the other's group", "in group further-1", func(s *story) {
			s.inGroup("further-1", func() {
				s.lock("a", 1, 2, 7)
				s.lock("b", 3, 4, 7) // of further-2
			})
		}},
		{"a grant in place of another group's", "smaller fence", func(s *story) {
			s.inGroup("further-1", func() { s.lock("a", 1, 2, 7) })
			s.inGroup("further-2", func() { s.lock("b", 3, 4, 9) })
			s.inGroup("further-1", func() { s.lock("c", 5, 6, 3) })
		}},
		{"held twice", notLinearizable, func(s *story) {
			s.inGroup("further-1", func() {
				s.lock("a", 1, 2, 7)
				s.lock("b", 3, 4, 9)
				s.on(opCheck, "a", 5, 6, 7)
			})
		}},
		{"a key in each of two groups", "", func(s *story) {
			s.write(opPut, "x", 0, 1, 2, resultOK, 4)
			s.inGroup("further-1", func() { s.write(opPut, "y", 0, 3, 4, resultOK, 2); s.get(5, 6, "y", 2) })
			s.get(5, 6, "x", 4)
		}},
		{"a value of another group", "further-1: k" + notLinearizable, func(s *story) {
			s.write(opPut, "x", 0, 1, 2, resultOK, 4)
			s.inGroup("further-1", func() { s.get(5, 6, "x", 4) })
		}},
		{"a write in another group", "k" + notLinearizable, func(s *story) {
			s.inGroup("further-1", func() { s.write(opPut, "y", 0, 3, 4, resultOK, 5) })
			s.write(opPut, "x", 0, 1, 2, resultOK, 4)
			s.get(5, 6, "y", 5)
		}},
		{"not found", "a group that exists was not found", func(s *story) {
			s.inGroup("further-1", func() { s.add("p", 1, 2, record{Op: opGet, Name: "k"}, resultNoGroup, 0) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.build(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

func TestCheckGroups_Resource(t *testing.T) {
	entry := func(at int64, group, hold string, fence uint64) write {
		return write{Time: at, Group: group, Name: "l", Hold: hold, Fence: fence, Accepted: true}
	}
	expectVerdict(t, nil, []write{entry(1, "further-1", "a", 2), entry(2, "further-2", "b", 2), entry(3, "", "c", 1)}, "")
	expectVerdict(t, nil, []write{entry(1, "further-1", "a", 2), entry(2, "further-1", "b", 2)}, "from two holds")
	expectVerdict(t, nil, []write{entry(1, "forced-0", "a", 2), entry(2, "forced-0", "b", 1)}, "against the order")
}

func TestCheckGroups_CreatedAgain(t *testing.T) {
	const x, y = "forced-0#x", "forced-0#y"
	for _, c := range []struct {
		name, want string
		build      func(s *story)
	}{
		{"a hold outlasts its group", "", func(s *story) { // its holder is partitioned
			s.inGroup(x, func() { s.lock("a", 1, 2, 7) })
			s.life(x, opForce, 3, 4, resultOK)
			s.inGroup(y, func() { s.lock("b", 5, 6, 8) })
			s.inGroup(x, func() { s.on(opCheck, "a", 7, 8, 7) })
		}},
		{"a fence is granted again", "granted twice", func(s *story) {
			s.inGroup(x, func() { s.lock("a", 1, 2, 7) })
			s.inGroup(y, func() { s.lock("b", 5, 6, 7) })
		}},
		{"fences begin again", "smaller fence", func(s *story) {
			s.inGroup(x, func() { s.lock("a", 1, 2, 7) })
			s.inGroup(y, func() { s.lock("b", 5, 6, 1) })
		}},
		{"another group's fences", "", func(s *story) {
			s.inGroup(x, func() { s.lock("a", 1, 2, 7) })
			s.inGroup("forced-1#z", func() { s.lock("b", 5, 6, 1) })
		}},
		{"a key outlasts its group", "is not linearizable", func(s *story) {
			s.inGroup(x, func() { s.write(opPut, "v", 0, 1, 2, resultOK, 4) })
			s.inGroup(y, func() { s.get(5, 6, "v", 4) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.build(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

func TestCheckGroups_Deleted(t *testing.T) {
	const x, y = "forced-0#x", "forced-0#y"
	for _, c := range []struct {
		name, want string
		build      func(s *story)
	}{
		{"used after its deletion", "a deleted group has answered", func(s *story) {
			s.life(x, opForce, 1, 2, resultOK)
			s.inGroup(x, func() { s.lock("a", 3, 4, 7) })
		}},
		{"not found after its deletion", "", func(s *story) {
			s.life(x, opForce, 1, 2, resultOK)
			s.inGroup(x, func() { s.add("p", 3, 4, record{Op: opGet, Name: "k"}, resultNoGroup, 0) })
		}},
		{"deleted with a key", "deleted without force", func(s *story) {
			s.inGroup(x, func() { s.write(opPut, "v", 0, 1, 2, resultOK, 4) })
			s.life(x, opDelete, 3, 4, resultOK)
		}},
		{"deleted without force after a deletion with it", "", func(s *story) {
			s.inGroup(x, func() { s.write(opPut, "v", 0, 1, 2, resultOK, 4) })
			s.life(y, opForce, 3, 6, resultOK)
			s.life(x, opDelete, 5, 7, resultOK)
		}},
		{"created and not found", "although none was deleted", func(s *story) {
			s.life("forced-0", opForce, 1, 2, resultOK)
			s.life("forced-0", opCreate, 3, 4, resultNoGroup)
		}},
		{"created while it is deleted", "", func(s *story) {
			s.life(x, opForce, 1, 4, resultOK)
			s.life("forced-0", opCreate, 3, 5, resultNoGroup)
		}},
		{"its client seems closed", "a client that is not closed", func(s *story) {
			s.inGroup(x, func() { s.add("p", 3, 4, record{Op: opGet, Name: "k"}, resultFailed, 0).err = "get: client is closed" })
		}},
		{"a kept group with a hold", notLinearizable, func(s *story) {
			s.inGroup("kept-0", func() { s.lock("a", 1, 2, 7) })
			s.life("kept-0", opDelete, 3, 4, resultOK)
			s.inGroup("kept-0", func() { s.lock("b", 5, 6, 8); s.on(opCheck, "a", 7, 8, 7) })
		}},
		{"a kept group that is free", "", func(s *story) {
			s.inGroup("kept-0", func() { s.lock("a", 1, 2, 7); s.on(opUnlock, "a", 3, 4, 7) })
			s.life("kept-0", opDelete, 5, 6, resultOK)
			s.inGroup("kept-0", func() { s.lock("b", 7, 8, 8) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.build(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

// Fences of a group go on over the phases of a run, also if it was deleted meanwhile.
func TestCheckGroups_EarlierPhase(t *testing.T) {
	var s story
	s.inGroup("forced-0#x", func() { s.lock("a", 1, 2, 7) })
	s.inGroup("further-1", func() { s.lock("b", 3, 4, 9) })
	largest := largestFences(s.ops)
	if largest["forced-0"] != 7 || largest["further-1"] != 9 || len(largest) != 2 {
		t.Fatalf("got %v, want 7 and 9", largest)
	}
	for _, group := range []string{"forced-0#y", "further-1"} {
		var s story
		s.inGroup(group, func() { s.lock("c", 1, 2, 7) })
		if v := checkAll(s.ops, nil, largest); len(v.violations) == 0 {
			t.Errorf("%s: a fence of an earlier phase is granted again, and no violation is reported", group)
		}
	}
}

func TestCheckLives(t *testing.T) {
	var v verdict
	checkLives(&v, &row{deleted: 30, forced: 20, notDeleted: 10})
	checkLives(&v, &row{deleted: 10})
	if len(v.violations) != 0 {
		t.Errorf("got %q, want none", v.violations)
	}
	checkLives(&v, &row{deleted: 30, forced: 30})
	if len(v.violations) != 1 {
		t.Errorf("no deletion was refused: got %q, want a violation", v.violations)
	}
}

func TestRow_GroupsMeasured(t *testing.T) {
	var s story
	s.lock("a", 10, 20, 1)
	s.lock("b", 50, 60, 2)
	s.inGroup("further-1", func() { s.lock("c", 10, 30, 1) })
	s.inGroup("kept-0", func() { s.lock("d", 10, 31, 1) })
	s.life("kept-0", opDelete, 40, 41, resultOK)
	s.life("kept-0", opDelete, 42, 43, resultRefused)
	s.life("forced-0#x", opForce, 44, 45, resultOK)
	r := row{began: 0, ended: 90}
	r.measure(s.ops, []death{{"further-1", 5}, {at: 5}})
	if r.gap != 60 || len(r.failovers) != 2 || r.failovers[0] != 25 || r.failovers[1] != 15 {
		t.Errorf("got a gap of %v and failovers %v, want 60 ns, 25 ns and 15 ns", r.gap, r.failovers)
	}
	if r.deleted != 1 || r.notDeleted != 1 || r.forced != 1 {
		t.Errorf("got %d, %d and %d deletions, want one each", r.deleted, r.notDeleted, r.forced)
	}
}

func TestClassify_GroupNotFound(t *testing.T) {
	for _, op := range []string{opLock, opPut, opGet, opCheck, opUnlock, opDelete} {
		if got := classify(op, errors.Join(conclave.ErrGroupNotFound, conclave.ErrUnknown)); got != resultNoGroup {
			t.Errorf("%s: got %s", op, got)
		}
	}
}
