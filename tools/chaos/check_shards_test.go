//go:build linux

package main

import (
	"strings"
	"testing"
)

const oneShard = "p/shards/settled/3"

// own adds a work on the shard that began at a time. worker is that of the hold: "m1.1.node.settled#1" is of member m1.
func (s *story) own(hold string, run, begun int64, fence uint64) *operation {
	return s.add(workerProcess(hold), run, begun, record{Op: opOwn, Name: oneShard, Hold: hold}, resultOK, fence)
}

func (s *story) trusts(hold string, call, returned int64, fence uint64) {
	s.add(workerProcess(hold), call, returned, record{Op: opCheck, Name: oneShard, Hold: hold, Fence: fence}, resultOK, fence)
}

// ends adds the end of a work: with resultMoved, from then on until it returned.
func (s *story) ends(hold string, ended, returned int64, fence uint64, result string) {
	s.add(workerProcess(hold), ended, returned, record{Op: opReturn, Name: oneShard, Hold: hold, Fence: fence}, result, 0)
}

func workerProcess(hold string) string { return strings.Join(strings.SplitN(hold, ".", 3)[:2], ".") }

// elsewhere adds a work of the same worker on another shard, which it trusts from a time to another.
func (s *story) elsewhere(hold string, from, until int64, fence uint64) {
	s.own(hold, 1, from, fence).Name = "p/shards/settled/4"
	s.trusts(hold, until, until+1, fence)
	s.ops[len(s.ops)-1].Name = "p/shards/settled/4"
}

func (s *story) asksOwner(call, returned int64, fence uint64) {
	s.add("r", call, returned, record{Op: opOwner, Name: oneShard}, resultOK, fence)
}

const (
	anna = "m1.1.node.settled"
	ben  = "m2.1.node.settled"
)

func TestCheckShards(t *testing.T) {
	expectTales(t, []tale{
		{"moved when the work has returned", "", func(s *story) {
			s.own(anna+"#1", 1, 2, 1)
			s.elsewhere(anna+"#2", 3, 20, 2)
			s.trusts(anna+"#1", 4, 5, 1)
			s.ends(anna+"#1", 6, 8, 1, resultMoved)
			s.own(ben+"#1", 1, 9, 3)
			s.trusts(ben+"#1", 10, 11, 3)
		}},
		{"lost, and owned by another worker", "", func(s *story) {
			s.own(anna+"#1", 1, 2, 1)
			s.trusts(anna+"#1", 3, 4, 1)
			s.own(ben+"#1", 1, 6, 2)
			s.ends(anna+"#1", 7, 8, 1, resultLost)
		}},
		{"two owners, seen by a check", notLinearizable, func(s *story) {
			s.own(anna+"#1", 1, 2, 1)
			s.own(ben+"#1", 1, 4, 2)
			s.trusts(anna+"#1", 5, 6, 1)
		}},
		{"a later owner with a smaller fence", "smaller fence", func(s *story) {
			s.own(anna+"#1", 1, 2, 2)
			s.own(ben+"#1", 3, 4, 1)
		}},
		{"one fence for two owners", "granted twice", func(s *story) {
			s.own(anna+"#1", 1, 2, 1)
			s.own(ben+"#1", 1, 3, 1)
		}},
	})
}

func TestCheckShards_Owner(t *testing.T) {
	expectTales(t, []tale{
		{"before the work has begun, none, and one whose work never began", "", func(s *story) {
			s.asksOwner(2, 3, 1)
			s.own(anna+"#1", 1, 4, 1)
			s.asksOwner(5, 6, 0)
			s.asksOwner(7, 8, 2)
			s.own(ben+"#1", 1, 10, 3)
		}},
		{"the former owner", notLinearizable, func(s *story) {
			s.own(anna+"#1", 1, 2, 1)
			s.own(ben+"#1", 1, 4, 2)
			s.asksOwner(5, 6, 1)
		}},
		{"another one than before", notLinearizable, func(s *story) {
			s.asksOwner(1, 2, 2)
			s.own(anna+"#1", 1, 4, 1)
			s.trusts(anna+"#1", 5, 6, 1)
			s.own(ben+"#1", 1, 8, 2)
		}},
	})
}

func TestCheckMoves(t *testing.T) {
	expectTales(t, []tale{
		{"granted before the work has returned", "before the work on it had returned", func(s *story) {
			s.own(anna+"#1", 1, 2, 1)
			s.elsewhere(anna+"#2", 3, 20, 2)
			s.own(ben+"#1", 1, 7, 3)
			s.ends(anna+"#1", 6, 8, 1, resultMoved)
		}},
		{"the session may have ended meanwhile", "", func(s *story) {
			s.own(anna+"#1", 1, 2, 1)
			s.elsewhere(anna+"#2", 3, 7, 2)
			s.own(ben+"#1", 1, 7, 3)
			s.ends(anna+"#1", 6, 8, 1, resultMoved)
		}},
		{"the session may be another one", "", func(s *story) {
			s.own(anna+"#1", 1, 2, 1)
			s.own(ben+"#1", 1, 7, 3)
			s.ends(anna+"#1", 6, 8, 1, resultMoved)
			s.elsewhere(anna+"#2", 7, 20, 4)
		}},
		{"the work has outlasted its grace", "", func(s *story) {
			s.own(anna+"#1", 1, 2, 1)
			s.elsewhere(anna+"#2", 3, 20*int64(grace), 2)
			s.own(ben+"#1", 1, 3*int64(grace), 3)
			s.ends(anna+"#1", 6, 4*int64(grace), 1, resultMoved)
		}},
	})
}

func TestCheckShards_Resource(t *testing.T) {
	var s story
	s.own(anna+"#1", 1, 2, 1)
	s.own(ben+"#1", 1, 20, 2)
	writes := []write{
		{Sequence: 1, Time: 3, Name: oneShard, Hold: anna + "#1", Fence: 1, Accepted: true},
		{Sequence: 2, Time: 21, Name: oneShard, Hold: ben + "#1", Fence: 2, Accepted: true},
		{Sequence: 3, Time: 22, Name: oneShard, Hold: anna + "#1", Fence: 1},
	}
	if v := checkAll(s.ops, writes, nil); len(v.violations) > 0 || v.refused != 1 {
		t.Errorf("got %v and %d refused writes, want 1 refused", v.violations, v.refused)
	}
	writes[2].Accepted = true
	expectVerdict(t, s.ops, writes, "against the order of fences")
}

func TestCheckRolls(t *testing.T) {
	owners := []string{"m1", "m1", "m1", "m2"}
	for _, c := range []struct {
		name, want string
		tell       func(s *story)
	}{
		{"back at its worker", "", func(s *story) {
			s.own("m1.1.node.settled#1", 1, 5, 1) // before
			s.own("m2.1.node.settled#1", 1, 11, 2)
			s.own("m2.2.node.settled#1", 1, 15, 3)
		}},
		{"elsewhere for a time", "has moved", func(s *story) {
			s.own("m2.1.node.settled#1", 1, 11, 1)
			s.own("m1.1.node.settled#1", 1, 12, 2)
			s.own("m2.2.node.settled#1", 1, 15, 3)
		}},
		{"of another set", "", func(s *story) { s.own("m1.1.node.mixed#1", 1, 12, 1).Name = "p/shards/mixed/3" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.tell(&s)
			var v verdict
			checkRolls(&v, s.ops, []roll{{from: 10, until: 20, owners: owners}})
			expectViolation(t, v, c.want)
		})
	}
}

// expectViolation wants a violation with a text, or none with "".
func expectViolation(t *testing.T, v verdict, want string) {
	t.Helper()
	if text := strings.Join(v.violations, "\n"); (want == "") != (text == "") || !strings.Contains(text, want) {
		t.Errorf("got %q, want %q", text, want)
	}
}

func TestTakenOver(t *testing.T) {
	var s story
	s.own(anna+"#1", 1, 2, 1)
	s.ends(anna+"#1", 3, 4, 1, resultMoved)
	s.own(ben+"#1", 1, 5, 2) // killed
	s.own(anna+"#2", 1, 8, 3)
	s.ends(anna+"#2", 9, 9, 3, resultLost)
	s.own(ben+"#2", 1, 12, 4)
	if n := takenOver(s.ops); n != 2 {
		t.Errorf("got %d, want 2", n)
	}
}

func TestCheckWork(t *testing.T) {
	for _, c := range []struct {
		row  row
		want bool // fine
	}{
		{row{owned: 43, runs: 19}, true},
		{row{owned: 100, moved: 3, runs: 100, done: 80, closed: 70, regular: 1}, true},
		{row{owned: 100, moved: 3, runs: 100, done: 80, closed: 70}, false},
		{row{owned: 100, runs: 100, done: 80, closed: 70, regular: 1}, false},
		{row{runs: 20, done: 20, closed: 70}, true},
		{row{runs: 20, done: 20}, false},
		{row{runs: 20, closed: 70}, false},
		{row{owned: 100, moved: 3, runs: 100, done: 100, closed: 70, regular: 1}, false},
	} {
		var v verdict
		if checkWork(&v, &c.row); (len(v.violations) == 0) != c.want {
			t.Errorf("%+v: %v", c.row, v.violations)
		}
	}
}

func TestShardStates(t *testing.T) {
	is := func(owner string, fence uint64) shardState { return shardState{Owner: owner, Fence: fence} }
	for _, c := range []struct {
		all  []shardState
		want bool
	}{
		{[]shardState{is("m1", 1), is("m2", 2), is("m1", 3)}, true},
		{[]shardState{is("m1", 1), is("m1", 2), is("m1", 3)}, false}, // m2 has none yet
		{[]shardState{is("m1", 1), is("m2", 2), is("", 0)}, false},
		{[]shardState{is("m1", 1), is("m2", 2), {"m1", 3, true}}, false},
		{[]shardState{is("m1", 1), is("m1", 2), is("m1", 3), is("m2", 4)}, false},
	} {
		if got := balanced(c.all, 2); (got == nil) != c.want {
			t.Errorf("balanced, %v: %v", c.all, got)
		}
	}
	before := []shardState{is("m1", 1), is("m2", 2), is("m1", 3)}
	for _, c := range []struct {
		all  []shardState
		want bool
	}{
		{[]shardState{is("m1", 4), is("m2", 2), is("m1", 5)}, true},
		{[]shardState{is("m1", 4), is("m2", 2), is("m1", 3)}, false},
		{[]shardState{is("m1", 4), is("m2", 2), is("", 0)}, false},
		{[]shardState{is("m2", 4), is("m2", 2), is("m1", 5)}, true}, // which is a violation
	} {
		if got := takenBack(before, c.all, "m1"); (got == nil) != c.want {
			t.Errorf("taken back, %v: %v", c.all, got)
		}
	}
}
