//go:build linux

package main

import (
	"testing"
	"time"
)

func TestCheckEnds(t *testing.T) {
	const s = int64(time.Second)
	for _, c := range []struct {
		name, want string
		tell       func(s *story)
	}{
		{"ended, and granted to another", "", func(t *story) {
			t.limited(opLock, "a", 1*s, 2*s, 10*time.Second, resultOK)
			t.limited(opCheck, "a", 3*s, 4*s, 0, resultOK)
			t.limited(opCheck, "a", 11*s, 11*s+1, 0, resultExpired)
			t.lock("b", 5*s, 12*s, 2)
			t.limited(opUnlock, "a", 13*s, 14*s, 0, resultExpired)
		}},
		{"extended in time", "", func(t *story) {
			t.limited(opLock, "a", 1*s, 2*s, 10*time.Second, resultOK)
			t.limited(opExtend, "a", 9*s, 10*s, 10*time.Second, resultOK)
			t.limited(opCheck, "a", 18*s, 18*s+1, 0, resultOK)
			t.limited(opCheck, "a", 20*s, 20*s+1, 0, resultExpired)
		}},
		{"ended by an Extend that made it shorter", "", func(t *story) {
			t.limited(opLock, "a", 1*s, 2*s, 10*time.Second, resultOK)
			t.limited(opExtend, "a", 3*s, 9*s, time.Second, resultUnknown)
			t.limited(opCheck, "a", 4*s, 4*s+1, 0, resultExpired)
		}},
		{"locked again", "", func(t *story) {
			t.limited(opLock, "a", 1*s, 2*s, 10*time.Second, resultOK)
			t.add("a", 9*s, 10*s, record{Op: opLock, Name: "l", Hold: "a", Holds: 1, Limit: 3, MaxHold: 10 * time.Second}, resultOK, 1)
			t.limited(opCheck, "a", 11*s, 11*s+1, 0, resultExpired)
		}},
		{"extended after its end", notLinearizable, func(t *story) {
			t.limited(opLock, "a", 1*s, 2*s, 10*time.Second, resultOK)
			t.lock("b", 5*s, 12*s, 2)
			t.limited(opExtend, "a", 13*s, 14*s, 10*time.Second, resultOK)
		}},
		{"ended early", "early", func(t *story) {
			t.limited(opLock, "a", 1*s, 2*s, 10*time.Second, resultOK)
			t.limited(opCheck, "a", 9*s, 9*s+1, 0, resultExpired)
		}},
		{"ended without a MaxHold", "without MaxHold", func(t *story) {
			t.lock("a", 1*s, 2*s, 1)
			t.limited(opCheck, "a", 9*s, 9*s+1, 0, resultExpired)
		}},
		{"ended for a while", "is live after", func(t *story) {
			t.limited(opLock, "a", 1*s, 2*s, 10*time.Second, resultOK)
			t.limited(opCheck, "a", 11*s, 11*s+1, 0, resultExpired)
			t.limited(opCheck, "a", 12*s, 12*s+1, 0, resultOK)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.tell(&s)
			expectVerdict(t, s.ops, nil, c.want)
		})
	}
}

// limited adds an operation on a lock with fence 1.
func (s *story) limited(op, hold string, call, returned int64, limit time.Duration, result string) {
	r, fence := record{Op: op, Name: "l", Hold: hold, Fence: 1, MaxHold: limit}, uint64(1)
	if op == opLock {
		r.Fence = 0
	}
	if result != resultOK || op == opExtend || op == opUnlock {
		fence = 0
	}
	s.add(hold, call, returned, r, result, fence)
}

func TestCheckLimits(t *testing.T) {
	for _, c := range []struct {
		row  row
		want bool // fine
	}{
		{row{grants: 49}, true},
		{row{grants: 500, expired: 3, extended: 4}, true},
		{row{grants: 500, extended: 4}, false},
		{row{grants: 500, expired: 3}, false},
	} {
		var v verdict
		if checkLimits(&v, &c.row); (len(v.violations) == 0) != c.want {
			t.Errorf("%+v: %v", c.row, v.violations)
		}
	}
}
