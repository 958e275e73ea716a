//go:build linux

package main

import (
	"strings"
	"testing"
)

// by adds what a function adds to a story to the calls on a handle that a creation has returned.
func (s *story) by(handle string, add func()) {
	n := len(s.ops)
	add()
	for _, op := range s.ops[n:] {
		op.Handle = handle
	}
}

// create adds a creation of a group, which has returned that handle.
func (s *story) create(group, handle string, call, returned int64) {
	s.by(handle, func() { s.life(group, opCreate, call, returned, resultOK) })
}

// absent adds a read of a key that does not exist.
func (s *story) absent(call, returned int64) {
	s.add("p", call, returned, record{Op: opGet, Name: "k"}, resultAbsent, 0)
}

// missing adds a call that has not found its group.
func (s *story) missing(call, returned int64) {
	s.add("p", call, returned, record{Op: opPut, Name: "k", Value: "lost"}, resultNoGroup, 0)
}

// put adds a write.
func (s *story) put(value string, call, returned int64, index uint64) {
	s.write(opPut, value, 0, call, returned, resultOK, index)
}

type livesCase struct {
	name, want string
	build      func(s *story)
}

func expectVerdicts(t *testing.T, cases []livesCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.build(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

const x, y, kept0 = "forced-0#x", "forced-0#y", "kept-0"

// A deletion with an unknown outcome may take effect at any time after its call, and ends one group that it has found.
func TestCheckLives_UnknownDeletions(t *testing.T) {
	expectVerdicts(t, []livesCase{
		{"by force, takes effect late", "", func(s *story) {
			s.life(x, opForce, 1, 2, resultUnknown)
			s.inGroup(x, func() { s.put("v", 3, 4, 4) })
			s.life(x, opDelete, 5, 6, resultOK) // of the next group, without a key, or after that deletion
		}},
		{"by force, of a killed process", "", func(s *story) {
			s.life(x, opForce, 1, never, resultUnknown)
			s.inGroup(x, func() { s.put("v", 3, 4, 4) })
			s.life(x, opDelete, 5, 6, resultOK)
		}},
		{"before the first use of a client that was stopped", "", func(s *story) {
			s.create("forced-0", "h", 1, 2) // and reads the name x
			s.life(x, opForce, 3, 4, resultOK)
			s.inGroup(x, func() { s.by("h", func() { s.missing(5, 6) }) })
			s.life(x, opDelete, 7, 8, resultOK)
		}},
		{"two of two groups", "", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4) })
			s.life(x, opForce, 3, 9, resultOK)
			s.life(x, opForce, 3, never, resultUnknown)
			s.inGroup(y, func() { s.put("v2", 5, 6, 4); s.missing(7, 8) })
		}},
		{"two of two groups, of which one may have ended either", "", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4) })
			s.life(x, opForce, 3, never, resultUnknown)
			s.life(x, opForce, 5, 6, resultOK) // of x: the next group is used later
			s.inGroup(y, func() { s.put("v2", 10, 11, 4); s.missing(12, 13) })
		}},
		{"of an earlier phase, explains a creation", "", func(s *story) {
			s.life(kept0, opDelete, 1, 2, resultUnknown)
			s.life(kept0, opCreate, 3, 4, resultNoGroup)
		}},
		{"failed, explains no creation", "although none was deleted", func(s *story) {
			s.life(kept0, opDelete, 3, 4, resultFailed)
			s.life(kept0, opCreate, 3, 4, resultNoGroup)
		}},
	})
}

// A deletion without effect, or that has ended another group, explains nothing.
func TestCheckLives_OtherDeletions(t *testing.T) {
	expectVerdicts(t, []livesCase{
		{"failed", "deleted without force", func(s *story) {
			s.life(x, opForce, 1, 2, resultFailed)
			s.inGroup(x, func() { s.put("v", 3, 4, 4) })
			s.life(x, opDelete, 5, 6, resultOK)
		}},
		{"has found no group", "holds a key has ended", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4) })
			s.life("forced-0#w", opForce, 3, 6, resultNoGroup)
			s.life(x, opDelete, 5, 7, resultOK)
		}},
		{"without force", "deleted without force", func(s *story) {
			s.life(x, opDelete, 1, 2, resultUnknown)
			s.inGroup(x, func() { s.put("v", 3, 4, 4) })
			s.life(x, opDelete, 5, 6, resultOK)
		}},
		{"ended another group before", "deleted without force", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4) })
			s.life("forced-0#w", opForce, 0, 3, resultOK)
			s.inGroup(x, func() { s.put("u", 4, 5, 5) })
			s.life(x, opDelete, 6, 7, resultOK)
		}},
		{"ended one of two groups", "holds a key has ended", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4) })
			s.life(x, opForce, 3, 4, resultUnknown)
			s.inGroup(y, func() { s.put("v2", 5, 6, 4); s.missing(7, 8) })
		}},
		{"ended another one than it found", "holds a key has ended", func(s *story) {
			s.inGroup("forced-0#w", func() { s.put("u", 1, 2, 4) })
			s.life("forced-0#w", opForce, 3, 4, resultUnknown)
			s.life("forced-0#w", opForce, 5, 9, resultUnknown)
			s.inGroup("forced-0#w", func() { s.put("v", 10, 11, 5) })
			s.inGroup(x, func() { s.put("v1", 12, 13, 4) })
			s.inGroup(y, func() { s.put("v2", 14, 15, 4) })
		}},
	})
}

// A handle to a deleted group reaches no later one, also if another process has deleted the group.
func TestCheckLives_StaleHandles(t *testing.T) {
	expectVerdicts(t, []livesCase{
		{"deleted by a client of an earlier one", "a deleted group has answered", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4) })
			s.life("forced-0#w", opForce, 3, 4, resultOK)
			s.inGroup(x, func() { s.put("v2", 5, 6, 5) })
		}},
		{"deleted by a client of a later one", "a deleted group has answered", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4) })
			s.life(x, opForce, 1, 2, resultUnknown)
			s.life(y, opForce, 3, 4, resultOK)
			s.inGroup(x, func() { s.put("v2", 5, 6, 5) })
		}},
		{"deleted by a process that was killed, and replaced", "a deleted group has answered", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4) })
			s.life(x, opForce, 3, never, resultUnknown)
			s.inGroup(y, func() { s.put("v2", 4, 5, 4) })
			s.inGroup(x, func() { s.put("v3", 6, 7, 5) })
		}},
		{"a lock after a later one", "a deleted group has answered", func(s *story) {
			s.inGroup(x, func() { s.lock("a", 1, 2, 7) })
			s.life(x, opForce, 3, never, resultUnknown)
			s.inGroup(y, func() { s.put("v2", 4, 5, 4) })
			s.inGroup(x, func() { s.on(opUnlock, "a", 6, 7, 7) })
		}},
		{"answers after it was not found", "a deleted group has answered", func(s *story) {
			s.life(x, opForce, 1, 2, resultUnknown)
			s.inGroup(x, func() { s.missing(3, 4); s.put("v", 5, 6, 4) })
		}},
		{"calls of two groups at the same time", "", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 9, 4) })
			s.life(x, opForce, 1, 3, resultOK)
			s.inGroup(y, func() { s.put("v2", 2, 9, 4) })
		}},
	})
}

// A creation returns a handle to a group that was not deleted before, which is of use until that group is deleted.
func TestCheckLives_Creations(t *testing.T) {
	expectVerdicts(t, []livesCase{
		{"a creation returns a deleted group", "handle to a deleted group", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4) })
			s.life(x, opForce, 3, 4, resultOK)
			s.create("forced-0", "h", 5, 6)
			s.inGroup(x, func() { s.by("h", func() { s.missing(7, 8) }) })
		}},
		{"a creation finds a sealed group", "", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4); s.missing(4, 5) })
			s.life(x, opForce, 3, 9, resultOK)
			s.create("forced-0", "h", 6, 7)
			s.inGroup(x, func() { s.by("h", func() { s.missing(8, 9) }) })
		}},
		{"a group without holds", "a deleted group has answered", func(s *story) {
			s.create(kept0, "h", 1, 2)
			s.life(kept0, opDelete, 3, 4, resultOK)
			s.create(kept0, "i", 5, 6)
			s.inGroup(kept0, func() { s.by("h", func() { s.lock("a", 7, 8, 7) }) })
		}},
		{"a group without holds is used by a new handle", "", func(s *story) {
			s.create(kept0, "h", 1, 2)
			s.life(kept0, opDelete, 3, 4, resultOK)
			s.create(kept0, "i", 5, 6)
			s.inGroup(kept0, func() {
				s.by("i", func() { s.lock("a", 7, 8, 7) })
				s.by("h", func() { s.missing(9, 10) })
			})
		}},
		{"deleted while it is created", "", func(s *story) {
			s.create(kept0, "h", 1, 4)
			s.life(kept0, opDelete, 2, 3, resultOK)
			s.inGroup(kept0, func() { s.by("h", func() { s.lock("a", 5, 6, 7) }) })
		}},
	})
}

// A member reads what a sealed group has until it has applied that the group is dropped.
func TestCheckLives_Reads(t *testing.T) {
	read := func(handle string) func(s *story) {
		return func(s *story) {
			s.create("forced-0", "h", 1, 2)
			s.inGroup(x, func() { s.by("h", func() { s.life(x, opForce, 3, 4, resultOK) }) })
			s.inGroup(x, func() { s.by(handle, func() { s.absent(5, 6) }) })
		}
	}
	expectVerdicts(t, []livesCase{
		{"by another process", "", read("i")},
		{"by the one that has deleted it", "read by the process that has deleted it", read("h")},
		{"after a command was refused", "", func(s *story) {
			s.inGroup(x, func() { s.by("h", func() { s.missing(3, 4); s.absent(5, 6) }) })
			s.life(x, opForce, 2, 8, resultOK)
		}},
		{"deleted before a read, without a later use", "", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4) })
			s.life(x, opForce, 3, 4, resultOK)
			s.inGroup(x, func() { s.get(5, 6, "v", 4); s.missing(7, 8) })
		}},
	})
}

func TestCheckLives_Holds(t *testing.T) {
	const late = int64(sessionTTL)
	held := func(at int64) func(s *story) {
		return func(s *story) {
			s.inGroup(x, func() { s.lock("a", 1, 2, 7) })
			s.life(x, opForce, 3, 4, resultOK)
			s.inGroup(x, func() { s.on(opCheck, "a", at, at+1, 7) })
		}
	}
	expectVerdicts(t, []livesCase{
		{"until its deadline", "", held(4 + late)},
		{"after its deadline", "outlasts its group", held(5 + late)},
		{"deleted without force", "outlasts its group", func(s *story) {
			s.create(kept0, "h", 1, 2)
			s.inGroup(kept0, func() { s.by("h", func() { s.lock("a", 3, 4, 7) }) })
			s.life(kept0, opDelete, 5, 6, resultOK)
			s.inGroup(kept0, func() { s.by("h", func() { s.on(opCheck, "a", 7, 8, 7) }) })
		}},
	})
}

// A group that is not found was deleted.
func TestCheckLives_NotDeleted(t *testing.T) {
	expectVerdicts(t, []livesCase{
		{"an instance is not found", "holds a key has ended", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4); s.missing(3, 4) })
		}},
		{"an instance is deleted later", "holds a key has ended", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4); s.missing(3, 4) })
			s.life(x, opForce, 5, 6, resultUnknown)
		}},
		{"an instance is replaced", "holds a key has ended", func(s *story) {
			s.inGroup(x, func() { s.put("v", 1, 2, 4) })
			s.life(x, opDelete, 3, 4, resultUnknown) // which must be refused
			s.inGroup(y, func() { s.put("v2", 5, 6, 4) })
		}},
		{"a kept group is not found", "none was deleted", func(s *story) {
			s.life(kept0, opDelete, 1, 2, resultOK)
			s.life(kept0, opDelete, 1, 9, resultRefused)
			s.create(kept0, "h", 3, 4)
			s.inGroup(kept0, func() { s.by("h", func() { s.missing(5, 6) }) })
		}},
		{"a kept group was deleted late", "", func(s *story) {
			s.life(kept0, opDelete, 1, 2, resultUnknown)
			s.create(kept0, "h", 3, 4)
			s.inGroup(kept0, func() { s.by("h", func() { s.missing(5, 6) }) })
		}},
	})
}

// The fences of a later group are larger, also if the grants overlap or the names differ.
func TestCheckLives_Epochs(t *testing.T) {
	expectVerdicts(t, []livesCase{
		{"overlapping grants", "a later group grants a smaller fence", func(s *story) {
			s.inGroup(x, func() { s.lock("a", 1, 9, 7) })
			s.life(x, opForce, 2, never, resultUnknown)
			s.inGroup(y, func() { s.lock("b", 5, 6, 3) })
		}},
		{"overlapping grants with larger fences", "", func(s *story) {
			s.inGroup(x, func() { s.lock("a", 1, 9, 7) })
			s.life(x, opForce, 2, never, resultUnknown)
			s.inGroup(y, func() { s.lock("b", 5, 6, 8) })
		}},
		{"another name, created later", "a later group grants a smaller fence", func(s *story) {
			s.inGroup(x, func() { s.lock("a", 1, 2, 7) })
			s.life(x, opForce, 3, 4, resultOK)
			s.life("kept-1", opDelete, 5, 6, resultOK)
			s.create("kept-1", "h", 7, 8)
			s.inGroup("kept-1", func() { s.by("h", func() { s.lock("b", 9, 10, 3) }) })
		}},
		{"another name, of a group that may be older", "", func(s *story) {
			s.inGroup(x, func() { s.lock("a", 1, 2, 7) })
			s.life(x, opForce, 3, 5, resultOK)
			s.life("kept-1", opDelete, 4, 6, resultOK)
			s.create("kept-1", "h", 7, 8)
			s.inGroup("kept-1", func() { s.by("h", func() { s.lock("b", 9, 10, 3) }) })
		}},
	})
}

// A deletion of an earlier phase with an unknown outcome may take effect in the next one.
func TestLateDeletions(t *testing.T) {
	var s, next story
	s.life(x, opForce, 1, 2, resultUnknown)
	s.life(x, opForce, 1, 2, resultOK)
	s.inGroup(x, func() { s.add("p", 1, never, record{Op: opPut, Name: "k", Value: "v"}, resultUnknown, 0) })
	late := lateDeletions(s.ops)
	if len(late) != 1 || late[0].Op != opForce || late[0].Time != s.ops[0].Time {
		t.Fatalf("got %v, want the first of %v", late, s.ops)
	}
	next.inGroup(x, func() { next.put("v", 11, 12, 4); next.missing(13, 14) })
	if v := checkAll(next.ops, nil, nil); !strings.Contains(strings.Join(v.violations, "\n"), "has ended") {
		t.Errorf("got %q without the deletion, want a violation", v.violations)
	}
	expectVerdict(t, append(late, next.ops...), nil, "")
}

// A process labels its handles alike in each phase. A deletion of an earlier one says nothing of the handle that has its label now.
func TestLateDeletions_HandleOfTheirLabel(t *testing.T) {
	var s, next story
	s.by("h", func() { s.life("kept-1", opDelete, 1, 2, resultUnknown) })
	next.life("kept-1", opDelete, 11, 12, resultOK)
	next.create("kept-1", "h", 13, 14)
	next.inGroup("kept-1", func() { next.by("h", func() { next.lock("b", 15, 16, 3) }) })
	expectVerdict(t, append(lateDeletions(s.ops), next.ops...), nil, "")
}
