//go:build linux

package main

import "testing"

// both adds an operation on a lock that is taken in both modes.
func (s *story) both(op, hold string, call, returned int64, held, fence uint64) {
	s.add(hold, call, returned, record{Op: op, Name: "p/shared/1", Hold: hold, Fence: held}, resultOK, fence)
}

func TestCheckShared(t *testing.T) {
	for _, c := range []struct {
		name, want string
		tell       func(s *story)
	}{
		{"readers together, then a writer that downgrades, and one that joins", "", func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.both(opTryRLock, "b", 3, 4, 0, 1)
			s.both(opRCheck, "a", 5, 6, 1, 1)
			s.both(opRUnlock, "a", 7, 8, 1, 0)
			s.both(opRUnlock, "b", 9, 12, 1, 0)
			s.both(opLock, "c", 3, 11, 0, 2)
			s.both(opCheck, "c", 13, 14, 2, 2)
			s.both(opDowngrade, "c", 15, 18, 2, 3)
			s.both(opRLock, "d", 16, 17, 0, 3)
			s.both(opRUnlock, "c", 19, 20, 3, 0)
			s.both(opRUnlock, "d", 21, 22, 3, 0)
			s.both(opTry, "e", 23, 24, 0, 4)
			s.both(opUnlock, "e", 25, 26, 4, 0)
		}},
		{"a reader joins what is held by a process that lingers", "", func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.both(opRUnlock, "a", 3, 4, 1, 0)
			s.both(opRLock, "b", 5, 6, 0, 1)
			s.both(opRUnlock, "b", 7, 8, 1, 0)
		}},
		{"a reader is lost, a writer is granted", "", func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.both(opRCheck, "a", 3, 4, 1, 1)
			s.both(opLock, "b", 5, 6, 0, 2)
			s.both(opUnlock, "b", 7, 8, 2, 0)
			s.add("a", 9, 10, record{Op: opRUnlock, Name: "p/shared/1", Hold: "a", Fence: 1}, resultLost, 0)
		}},
		{"an earlier phase beside grants of other names", "", func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.lock("b", 3, 4, 2)
			s.both(opRLock, "c", 5, 6, 0, 1)
			s.both(opRCheck, "c", 7, 8, 1, 1)
			s.both(opRCheck, "a", 7, 8, 1, 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.tell(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

func TestCheckShared_Violations(t *testing.T) {
	for _, c := range []struct {
		name, want string
		tell       func(s *story)
	}{
		{"a writer beside a reader, seen by a check", notLinearizable, func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.both(opLock, "b", 3, 4, 0, 2)
			s.both(opRCheck, "a", 5, 6, 1, 1)
		}},
		{"a writer beside a reader, seen by its release", notLinearizable, func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.both(opLock, "b", 3, 4, 0, 2)
			s.both(opRUnlock, "a", 5, 6, 1, 0)
		}},
		{"a reader beside a writer", notLinearizable, func(s *story) {
			s.both(opLock, "a", 1, 2, 0, 1)
			s.both(opRLock, "b", 3, 4, 0, 2)
			s.both(opUnlock, "a", 5, 6, 1, 0)
		}},
		{"two fences of readers at the same time", notLinearizable, func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.both(opRLock, "b", 3, 4, 0, 2)
			s.both(opRUnlock, "a", 5, 6, 1, 0)
		}},
		{"a writer comes between in a downgrade", notLinearizable, func(s *story) {
			s.both(opLock, "a", 1, 2, 0, 1)
			s.both(opDowngrade, "a", 3, 8, 1, 3)
			s.both(opLock, "b", 4, 5, 0, 2)
			s.both(opUnlock, "b", 6, 7, 2, 0)
			s.both(opRUnlock, "a", 9, 10, 3, 0)
		}},
		{"a phase goes on after a writer", "smaller fence", func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.both(opRUnlock, "a", 3, 4, 1, 0)
			s.both(opLock, "b", 5, 6, 0, 2)
			s.both(opUnlock, "b", 7, 8, 2, 0)
			s.both(opRLock, "c", 9, 10, 0, 1)
		}},
		{"a reader has the fence of a writer", "granted twice", func(s *story) {
			s.both(opLock, "a", 1, 2, 0, 1)
			s.both(opUnlock, "a", 3, 4, 1, 0)
			s.both(opRLock, "b", 5, 6, 0, 1)
		}},
		{"readers of two locks have one fence", "granted twice", func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.add("b", 3, 4, record{Op: opRLock, Name: "p/shared/2", Hold: "b"}, resultOK, 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.tell(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

// Those that share a lock write with one fence, and are refused after a writer has been there.
func TestCheckShared_Resource(t *testing.T) {
	var s story
	s.both(opRLock, "a", 1, 2, 0, 1)
	s.both(opRLock, "b", 1, 2, 0, 1)
	writes := []write{
		{Time: 3, Name: "p/shared/1", Hold: "a", Fence: 1, Accepted: true},
		{Time: 4, Name: "p/shared/1", Hold: "b", Fence: 1, Accepted: true},
	}
	expectVerdict(t, s.ops, writes, "")
	other := append(writes, write{Time: 5, Name: "p/shared/2", Hold: "c", Fence: 1, Accepted: true})
	expectVerdict(t, s.ops, other, "from two holds")
	s.both(opLock, "c", 3, 4, 0, 2)
	s.both(opRCheck, "b", 7, 8, 1, 1)
	late := append(writes, write{Time: 5, Name: "p/shared/1", Hold: "c", Fence: 2, Accepted: true},
		write{Time: 6, Name: "p/shared/1", Hold: "b", Fence: 1})
	expectVerdict(t, s.ops, late, "confirmed by its holder")
}

// A run whose clients have used one mode only has shown nothing.
func TestCheckModes(t *testing.T) {
	for name, c := range map[string]struct {
		exclusive, shared int
		want              bool
	}{
		"no exclusive grant": {0, enoughForModes, false},
		"no shared grant":    {enoughForModes, 0, false},
		"both":               {1, enoughForModes - 1, true},
		"too few":            {0, enoughForModes - 1, true},
	} {
		var s story
		s.lock("a", 1, 2, 1) // of a lock that is for one mode
		for range c.exclusive {
			s.both(opTry, "b", 1, 2, 0, 2)
		}
		for range c.shared {
			s.both(opRLock, "c", 1, 2, 0, 3)
		}
		s.both(opRUnlock, "c", 3, 4, 3, 0)
		var v verdict
		if checkModes(&v, s.ops); (len(v.violations) == 0) != c.want {
			t.Errorf("%s: %v", name, v.violations)
		}
	}
}
