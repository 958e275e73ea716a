//go:build linux

package main

import "testing"

// lm are the names of a set that is refused.
var lm = []part{only("l", 0), only("m", 0)}

func TestCheckTaken(t *testing.T) {
	expectTales(t, []tale{
		{"held during a part of the call", "", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.on(opUnlock, "a", 3, 6, 1)
			s.tried("b", 5, 8, []string{"l"}, lm...)
		}},
		{"held by another set", "", func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("m", 1), only("n", 1))
			s.tried("b", 3, 4, []string{"m"}, lm...)
			s.in(opUnlock, "a", 5, 6, 1, only("m", 1), only("n", 1))
		}},
		{"requested by a set that waits", "", func(s *story) {
			s.in(opLock, "a", 1, 9, 2, only("m", 2), only("n", 2))
			s.tried("b", 3, 4, []string{"m"}, lm...)
		}},
		{"requested by a call that failed", "", func(s *story) {
			s.add("a", 1, 2, record{Op: opLock, Name: "l", Hold: "a"}, resultFailed, 0)
			s.tried("b", 5, 6, []string{"l"}, lm...)
		}},
		{"lost", "", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.add("a", 3, 4, record{Op: opUnlock, Name: "l", Hold: "a", Fence: 1}, resultLost, 0)
			s.tried("b", 5, 6, []string{"l"}, lm...)
		}},
		{"a process may keep it", "", func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.both(opRUnlock, "a", 3, 4, 1, 0)
			s.tried("b", 5, 6, []string{both1}, only(both1, 0))
		}},
		{"a reader that waits before a shared name", "", func(s *story) {
			s.both(opRLock, "a", 1, 5, 0, 1)
			s.tried("b", 4, 6, []string{both1}, with(both1, 0))
		}},
		{"not listed, but held for a part of the call only", "", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.add("c", 1, 2, record{Op: opLock, Name: "m", Hold: "c"}, resultOK, 2)
			s.add("c", 4, 5, record{Op: opUnlock, Name: "m", Hold: "c", Fence: 2}, resultOK, 0)
			s.tried("b", 3, 6, []string{"l"}, lm...)
		}},
	})
}

func TestCheckTaken_NoReason(t *testing.T) {
	expectTales(t, []tale{
		{"no name", "no name is taken", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.tried("b", 3, 4, nil, lm...)
		}},
		{"free", "without a reason, for m", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.tried("b", 3, 4, []string{"l", "m"}, lm...)
		}},
		{"released before", "without a reason", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.on(opUnlock, "a", 3, 4, 1)
			s.tried("b", 5, 6, []string{"l"}, lm...)
		}},
		{"one name of a set is not released with the others", "without a reason, for m", func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("l", 1), only("m", 1))
			s.in(opUnlock, "a", 3, 4, 1, only("l", 1), only("m", 1))
			s.tried("b", 5, 6, []string{"m"}, lm...)
		}},
		{"one name of a refused set is held", "without a reason, for m", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.tried("b", 3, 4, []string{"l"}, lm...)
			s.tried("c", 5, 6, []string{"m"}, only("m", 0))
		}},
		{"lost, and another one was there in between", "without a reason", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.add("a", 3, 4, record{Op: opUnlock, Name: "l", Hold: "a", Fence: 1}, resultLost, 0)
			s.lock("c", 5, 6, 2)
			s.on(opUnlock, "c", 7, 8, 2)
			s.tried("b", 9, 10, []string{"l"}, lm...)
		}},
		{"taken later", "without a reason", func(s *story) {
			s.tried("b", 1, 2, []string{"l"}, lm...)
			s.lock("a", 3, 4, 1)
		}},
		{"a reader that holds it beside a shared name", "without a reason", func(s *story) {
			s.both(opRLock, "a", 1, 2, 0, 1)
			s.tried("b", 3, 4, []string{both1}, with(both1, 0))
			s.both(opRCheck, "a", 5, 6, 1, 1)
		}},
		{"a set that waits for a name shared too", "without a reason", func(s *story) {
			s.in(opLock, "a", 1, 9, 2, only("m", 2), with(both1, 2))
			s.tried("b", 3, 4, []string{both1}, with(both1, 0))
		}},
	})
}

func TestCheckTaken_NotListed(t *testing.T) {
	expectTales(t, []tale{
		{"not listed, but held all the time", "but not for m", func(s *story) {
			s.lock("a", 1, 2, 1)
			s.in(opLock, "c", 1, 2, 2, only("m", 2), only("n", 2))
			s.tried("b", 3, 4, []string{"l"}, lm...)
			s.in(opCheck, "c", 5, 6, 2, only("m", 2), only("n", 2))
		}},
		{"not listed, but shared all the time", "but not for " + both1, func(s *story) {
			s.lock("a", 1, 2, 1)
			s.both(opRLock, "c", 1, 2, 0, 2)
			s.tried("b", 3, 4, []string{"l"}, only("l", 0), only(both1, 0))
			s.both(opRCheck, "c", 5, 6, 2, 2)
		}},
	})
}

// A refusal names the hold that is in the way. Requests that wait for what is never released do not hide it.
func TestCheckTaken_HoldReleased(t *testing.T) {
	expectTales(t, []tale{
		{"released later", "", func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("l", 1), only("m", 1))
			s.in(opUnlock, "a", 3, 6, 1, only("l", 1), only("m", 1))
			s.tried("b", 4, 5, []string{"m"}, lm...).taken[0].Fence = 1
		}},
		{"not known", "", func(s *story) {
			s.add("a", 1, never, record{Op: opLock, Name: "m", Hold: "a"}, resultUnknown, 0)
			s.tried("b", 4, 5, []string{"m"}, lm...).taken[0].Fence = 1
		}},
		{"released before", "that had been released", func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("l", 1), only("m", 1))
			s.in(opUnlock, "a", 3, 4, 1, only("l", 1), only("m", 1))
			s.add("c", 5, 8, record{Op: opLock, Name: "m", Hold: "c"}, resultFailed, 0)
			s.tried("b", 6, 7, []string{"m"}, lm...).taken[0].Fence = 1
		}},
		{"another one replaced it", "that had been released", func(s *story) {
			s.in(opLock, "a", 1, 2, 1, only("l", 1), only("m", 1))
			s.in(opLock, "c", 3, 4, 2, only("m", 2), only("n", 2))
			s.tried("b", 6, 7, []string{"m"}, lm...).taken[0].Fence = 1
		}},
		{"a phase that has others in it", "", func(s *story) {
			s.in(opLock, "a", 1, 2, 1, with(both1, 1))
			s.add("c", 1, 3, record{Op: opTryRLock, Name: both1, Hold: "c"}, resultFailed, 0)
			s.in(opUnlock, "a", 3, 4, 1, with(both1, 1))
			s.tried("b", 6, 7, []string{both1}, only(both1, 0)).taken[0] = with(both1, 1)
		}},
		{"a phase that has ended", "that had been released", func(s *story) {
			s.in(opLock, "a", 1, 2, 1, with(both1, 1))
			s.in(opUnlock, "a", 3, 4, 1, with(both1, 1))
			s.add("c", 5, 8, record{Op: opLock, Name: both1, Hold: "c"}, resultFailed, 0)
			s.tried("b", 6, 7, []string{both1}, only(both1, 0)).taken[0] = with(both1, 1)
		}},
	})
}
