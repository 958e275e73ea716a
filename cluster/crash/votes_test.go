package crash

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestVotes(t *testing.T) {
	at := time.Now()
	x, y := Process{3, 1}, Process{4, 1}
	type statement struct {
		from      uint64
		processes []Process
	}
	for name, test := range map[string]struct {
		voters, outgoing []uint64
		statements       []statement
		want             []Process
	}{
		"both others":                     {[]uint64{1, 2, 3}, nil, []statement{{1, []Process{x}}, {2, []Process{x}}}, []Process{x}},
		"a minority":                      {[]uint64{1, 2, 3}, nil, []statement{{1, []Process{x}}}, nil},
		"one, and one of another start":   {[]uint64{1, 2, 3}, nil, []statement{{1, []Process{x}}, {2, []Process{{3, 2}}}}, nil},
		"one, and itself":                 {[]uint64{1, 2, 3}, nil, []statement{{1, []Process{x}}, {3, []Process{x}}}, nil},
		"one of two":                      {[]uint64{1, 3}, nil, []statement{{1, []Process{x}}}, nil},
		"the only voter, of a standby":    {[]uint64{1}, nil, []statement{{1, []Process{x}}}, []Process{x}},
		"two of two, of a standby":        {[]uint64{1, 2}, nil, []statement{{1, []Process{x}}, {2, []Process{x}}}, []Process{x}},
		"half of four":                    {[]uint64{1, 2, 3, 5}, nil, []statement{{1, []Process{x}}, {2, []Process{x}}}, nil},
		"three of five":                   {[]uint64{1, 2, 3, 5, 6}, nil, []statement{{1, []Process{x}}, {2, []Process{x}}, {6, []Process{x}}}, []Process{x}},
		"one, and members without a vote": {[]uint64{1, 2, 3}, nil, []statement{{1, []Process{x}}, {8, []Process{x}}, {9, []Process{x}}}, nil},
		"two processes at once":           {[]uint64{1, 2, 3, 4, 5}, nil, []statement{{1, []Process{x, y}}, {2, []Process{y, x}}, {5, []Process{x, y}}}, []Process{x, y}},
		"withdrawn":                       {[]uint64{1, 2, 3}, nil, []statement{{1, []Process{x}}, {2, []Process{x}}, {1, nil}}, nil},
		"replaced":                        {[]uint64{1, 2, 3}, nil, []statement{{1, []Process{x}}, {2, []Process{x}}, {2, []Process{y}}}, nil},
		"more than a group has members":   {[]uint64{1, 2, 3}, nil, []statement{{1, []Process{x}}, {2, slices.Repeat([]Process{x}, maxProcesses+1)}}, nil},
		"a majority of one half":          {[]uint64{1, 2, 3}, []uint64{3, 5, 6}, []statement{{1, []Process{x}}, {2, []Process{x}}}, nil},
		"a majority of the other half":    {[]uint64{1, 2, 3}, []uint64{3, 5, 6}, []statement{{5, []Process{x}}, {6, []Process{x}}}, nil},
		"a majority of both halves":       {[]uint64{1, 2, 3}, []uint64{2, 3, 5}, []statement{{1, []Process{x}}, {2, []Process{x}}, {5, []Process{x}}}, []Process{x}},
	} {
		var v Votes
		for _, s := range test.statements {
			v.Receive(s.from, s.processes, at)
		}
		if got := v.Crashed(test.voters, test.outgoing, at); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A statement expires by the leader's clock, and what has expired takes no memory.
func TestVotes_Expire(t *testing.T) {
	var v Votes
	at, x, voters := time.Now(), []Process{{3, 1}}, []uint64{1, 2, 3}
	v.Receive(1, x, at)
	v.Receive(2, x, at.Add(Lifetime-1))
	if got := v.Crashed(voters, nil, at.Add(Lifetime-1)); !slices.Equal(got, x) {
		t.Errorf("within the lifetime: %v", got)
	}
	if got := v.Crashed(voters, nil, at.Add(Lifetime)); got != nil {
		t.Errorf("after it: %v", got)
	}
	v.Receive(9, nil, at.Add(2*Lifetime))
	if len(v.statements) != 0 {
		t.Errorf("%d statements are kept", len(v.statements))
	}
	v.Receive(1, x, at)
	v.Receive(2, x, at)
	if v.Reset(); fmt.Sprint(v.Crashed(voters, nil, at)) != "[]" {
		t.Error("statements of an earlier term count")
	}
}
