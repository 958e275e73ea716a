//go:build linux

package main

import (
	"strings"
	"testing"
)

// story builds a history in small units of time.
type story struct {
	ops []*operation
}

func (s *story) add(process string, call, returned int64, r record, result string, fence uint64) *operation {
	r.Time = call
	r.ID = uint64(len(s.ops) + 1)
	op := &operation{record: r, process: process, returned: returned, result: result, fence: fence}
	s.ops = append(s.ops, op)
	return op
}

func (s *story) lock(hold string, call, returned int64, fence uint64) {
	s.add(hold, call, returned, record{Op: opLock, Name: "l", Hold: hold}, resultOK, fence)
}

func (s *story) on(op, hold string, call, returned int64, fence uint64) {
	s.add(hold, call, returned, record{Op: op, Name: "l", Hold: hold, Fence: fence}, resultOK, fence)
}

func (s *story) acquire(hold string, n int, call, returned int64, fence uint64) {
	s.add(hold, call, returned, record{Op: opAcquire, Name: "s", Hold: hold, N: n, Limit: 3}, resultOK, fence)
}

func (s *story) write(op, value string, expected uint64, call, returned int64, result string, index uint64) {
	s.add("p", call, returned, record{Op: op, Name: "k", Value: value, Index: expected}, result, 0).index = index
}

func (s *story) get(call, returned int64, value string, index uint64) {
	op := s.add("p", call, returned, record{Op: opGet, Name: "k"}, resultOK, 0)
	op.value, op.index = value, index
}

// expectVerdict runs all checkers. want is part of the first violation; "" wants none.
func expectVerdict(t *testing.T, ops []*operation, writes []write, want string) {
	t.Helper()
	v := checkAll(ops, writes, nil)
	if len(v.unknown) > 0 {
		t.Errorf("searches given up: %v", v.unknown)
	}
	switch {
	case want == "" && len(v.violations) > 0:
		t.Errorf("got violations, want none: %s", strings.Join(v.violations, "\n"))
	case want != "" && (len(v.violations) == 0 || !strings.Contains(strings.Join(v.violations, "\n"), want)):
		t.Errorf("got %q, want a violation with %q", v.violations, want)
	}
}

func TestCheckLocks(t *testing.T) {
	for _, c := range []struct {
		name, want string
		tell       func(s *story)
	}{
		{"one after the other", "", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.on(opCheck, "a", 3, 4, 1)
			s.on(opUnlock, "a", 5, 8, 1)
			s.lock("b", 2, 7, 2)
			s.on(opUnlock, "b", 9, 10, 2)
		}},
		{"granted after a loss", "", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.on(opCheck, "a", 3, 4, 1)
			s.lock("b", 2, 7, 2)
			s.add("a", 8, 9, record{Op: opCheck, Name: "l", Hold: "a", Fence: 1}, resultLost, 0)
		}},
		{"refused while free", notLinearizable, func(s *story) {
			s.lock("a", 1, 2, 1)
			s.on(opUnlock, "a", 3, 4, 1)
			s.add("b", 5, 6, record{Op: opTry, Name: "l", Hold: "b"}, resultRefused, 0)
		}},
		{"refused while a grant was lost on its way", "", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.on(opUnlock, "a", 3, 4, 1)
			s.add("b", 6, 7, record{Op: opTry, Name: "l", Hold: "b"}, resultRefused, 0)
			s.lock("d", 8, 9, 3)
			s.on(opUnlock, "d", 10, 11, 3)
			s.lock("c", 5, 12, 4)
		}},
		{"refused while an unknown acquisition may hold it", "", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.on(opUnlock, "a", 3, 4, 1)
			s.add("c", 1, never, record{Op: opLock, Name: "l", Hold: "c"}, resultUnknown, 0)
			s.add("b", 5, 6, record{Op: opTry, Name: "l", Hold: "b"}, resultRefused, 0)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.tell(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

func TestCheckLocks_DoubleGrants(t *testing.T) {
	for _, c := range []struct {
		name, want string
		tell       func(s *story)
	}{
		{"double grant, seen by a check", notLinearizable, func(s *story) {
			s.lock("a", 1, 2, 1)
			s.lock("b", 2, 4, 2)
			s.on(opCheck, "a", 5, 6, 1)
		}},
		{"double grant, seen by a release", notLinearizable, func(s *story) {
			s.lock("a", 1, 2, 1)
			s.lock("b", 3, 4, 2)
			s.on(opUnlock, "a", 5, 6, 1)
		}},
		{"repeated fence", "granted twice", func(s *story) {
			s.lock("a", 1, 2, 7)
			s.on(opUnlock, "a", 3, 4, 7)
			s.lock("b", 5, 6, 7)
		}},
		{"smaller fence later", "smaller fence", func(s *story) {
			s.lock("a", 1, 2, 7)
			s.on(opUnlock, "a", 3, 4, 7)
			s.lock("b", 5, 6, 6)
		}},
		{"smaller fence later, of another lock that lingers", "", func(s *story) {
			s.lock("a", 1, 2, 7)
			s.on(opUnlock, "a", 3, 4, 7)
			s.add("b", 5, 6, record{Op: opLock, Name: "p/lingering/1", Hold: "b"}, resultOK, 6)
		}},
		{"smaller fence later, of one lock that lingers", "smaller fence", func(s *story) {
			s.add("a", 1, 2, record{Op: opLock, Name: "p/lingering/1", Hold: "a"}, resultOK, 7)
			s.add("a", 3, 4, record{Op: opUnlock, Name: "p/lingering/1", Hold: "a", Fence: 7}, resultOK, 7)
			s.add("b", 5, 6, record{Op: opLock, Name: "p/lingering/1", Hold: "b"}, resultOK, 6)
		}},
		{"not held", "not held", func(s *story) {
			s.lock("a", 1, 2, 7)
			s.add("a", 3, 4, record{Op: opUnlock, Name: "l", Hold: "a", Fence: 7}, resultNotHeld, 0)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.tell(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

func TestCheckLocks_Reentrant(t *testing.T) {
	reenter := func(s *story, hold string, holds int, at int64, result string, fence uint64) {
		s.add(hold, at, at+1, record{Op: opLock, Name: "l", Hold: hold, Holds: holds, Limit: 2}, result, fence)
	}
	for _, c := range []struct {
		name, want string
		tell       func(s *story)
	}{
		{"to the limit", "", func(s *story) {
			reenter(s, "a", 0, 1, resultOK, 1)
			reenter(s, "a", 1, 3, resultOK, 1)
			reenter(s, "a", 2, 5, resultRefused, 0)
			s.on(opUnlock, "a", 7, 8, 1)
			s.on(opUnlock, "a", 9, 10, 1)
			reenter(s, "b", 0, 11, resultOK, 2)
		}},
		{"beyond the limit", notLinearizable, func(s *story) {
			reenter(s, "a", 0, 1, resultOK, 1)
			reenter(s, "a", 1, 3, resultOK, 1)
			reenter(s, "a", 2, 5, resultOK, 1)
		}},
		{"free after the first of two releases", notLinearizable, func(s *story) {
			reenter(s, "a", 0, 1, resultOK, 1)
			reenter(s, "a", 1, 3, resultOK, 1)
			s.on(opUnlock, "a", 5, 6, 1)
			reenter(s, "b", 0, 7, resultOK, 2)
			s.on(opUnlock, "a", 9, 10, 1)
		}},
		{"another fence", "another fence", func(s *story) {
			reenter(s, "a", 0, 1, resultOK, 1)
			reenter(s, "a", 1, 3, resultOK, 2)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.tell(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

func TestCheckPermits(t *testing.T) {
	release := func(s *story, hold string, at int64) {
		s.add(hold, at, at+1, record{Op: opRelease, Name: "s", Hold: hold}, resultOK, 0)
	}
	for _, c := range []struct {
		name, want string
		tell       func(s *story)
	}{
		{"within the limit", "", func(s *story) {
			s.acquire("a", 2, 1, 2, 1)
			s.acquire("b", 1, 3, 4, 2)
			s.acquire("c", 1, 3, 8, 3)
			release(s, "a", 6)
			release(s, "b", 9)
			release(s, "c", 11)
		}},
		{"beyond the limit", notLinearizable, func(s *story) {
			s.acquire("a", 2, 1, 2, 1)
			s.acquire("b", 2, 3, 4, 2)
			release(s, "a", 6)
			release(s, "b", 9)
		}},
		{"beyond the limit, seen by a check", notLinearizable, func(s *story) {
			s.acquire("a", 2, 1, 2, 1)
			s.acquire("b", 2, 3, 4, 2)
			s.add("a", 5, 6, record{Op: opConfirm, Name: "s", Hold: "a", Fence: 1}, resultOK, 1)
		}},
		{"after a loss", "", func(s *story) {
			s.acquire("a", 2, 1, 2, 1)
			s.acquire("b", 2, 3, 4, 2)
			s.add("a", 5, 6, record{Op: opRelease, Name: "s", Hold: "a"}, resultLost, 0)
			release(s, "b", 9)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.tell(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

func TestCheckKeys(t *testing.T) {
	for _, c := range []struct {
		name, want string
		tell       func(s *story)
	}{
		{"put, swap, read", "", func(s *story) {
			s.write(opSwap, "a", 0, 1, 2, resultOK, 5)
			s.write(opPut, "b", 0, 3, 6, resultOK, 6)
			s.get(4, 5, "a", 5)
			s.write(opSwap, "c", 5, 7, 8, resultRefused, 0)
			s.get(9, 10, "b", 6)
		}},
		{"lost update", notLinearizable, func(s *story) {
			s.write(opPut, "a", 0, 1, 2, resultOK, 5)
			s.write(opSwap, "b", 5, 3, 6, resultOK, 6)
			s.write(opSwap, "c", 5, 4, 7, resultOK, 7)
		}},
		{"acknowledged write not read", notLinearizable, func(s *story) {
			s.write(opPut, "a", 0, 1, 2, resultOK, 5)
			s.write(opPut, "b", 0, 3, 4, resultOK, 6)
			s.get(5, 6, "a", 5)
		}},
		{"unknown write, read later", "", func(s *story) {
			s.write(opPut, "a", 0, 1, never, resultUnknown, 0)
			s.write(opPut, "b", 0, 2, 3, resultOK, 4)
			s.get(4, 5, "b", 4)
			s.get(6, 9, "a", 7)
		}},
		{"unknown write takes effect twice", notLinearizable, func(s *story) {
			s.write(opPut, "a", 0, 1, never, resultUnknown, 0)
			s.get(2, 3, "a", 4)
			s.write(opPut, "b", 0, 4, 5, resultOK, 6)
			s.get(6, 7, "a", 8)
		}},
		{"unknown write, not read, explains a refusal", "", func(s *story) {
			s.write(opPut, "a", 0, 1, 2, resultOK, 4)
			s.write(opPut, "b", 0, 3, never, resultUnknown, 0)
			s.write(opSwap, "c", 4, 5, 6, resultRefused, 0)
		}},
		{"failed write is read", notLinearizable, func(s *story) {
			s.write(opPut, "a", 0, 1, 2, resultFailed, 0)
			s.get(3, 4, "a", 4)
		}},
		{"refused without a reason", notLinearizable, func(s *story) {
			s.write(opPut, "a", 0, 1, 2, resultOK, 4)
			s.write(opSwap, "c", 4, 5, 6, resultRefused, 0)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.tell(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

func TestCheckFences_AcrossNamesAndPhases(t *testing.T) {
	var s story
	s.lock("a", 1, 2, 7)
	s.acquire("b", 1, 3, 4, 6)
	expectVerdict(t, s.ops, nil, "smaller fence")
	if v := checkAll(s.ops[:1], nil, map[string]uint64{defaultGroup: 7}); len(v.violations) == 0 {
		t.Error("a fence of an earlier phase is granted again, and no violation is reported")
	}
}

func TestCheckResource(t *testing.T) {
	entry := func(at int64, hold string, fence uint64, accepted bool) write {
		return write{Time: at, Name: "l", Hold: hold, Fence: fence, Accepted: accepted}
	}
	for _, c := range []struct {
		name, want string
		writes     []write
	}{
		{"in order", "", []write{entry(1, "a", 1, true), entry(2, "b", 2, true), entry(3, "a", 1, false)}},
		{"against the order", "against the order", []write{entry(1, "b", 2, true), entry(2, "a", 1, true)}},
		{"two holds with one fence", "from two holds", []write{entry(1, "a", 1, true), entry(2, "b", 1, true)}},
		{"not stale", "not stale", []write{entry(1, "a", 1, true), entry(2, "b", 2, false)}},
	} {
		t.Run(c.name, func(t *testing.T) { expectVerdict(t, nil, c.writes, c.want) })
	}
	var s story
	s.lock("a", 1, 2, 1)
	s.on(opCheck, "a", 5, 6, 1)
	expectVerdict(t, s.ops, []write{entry(3, "b", 2, true), entry(4, "a", 1, false)}, "confirmed by its holder")
}
