package spread

import (
	"reflect"
	"testing"
)

// looks lets a member look as often as that, and returns what was due at which look, from 1 on.
func looks(h *hysteresis, self uint64, n int, v View) (due []int, last Move) {
	for i := range n {
		if m := h.look(self, v); m.Priority {
			due, last = append(due, i+1), m
		}
	}
	return due, last
}

func TestByPriority(t *testing.T) {
	low := []int32{0, 0, -1} // the third should not lead
	differ := view(3, 1).with(low)
	differ.Same = false
	for name, test := range map[string]struct {
		view   View
		self   uint64
		groups []uint32
		to     []uint64
	}{
		"leads one":                                  {view(1, 2, 3).with(low), 3, []uint32{2}, []uint64{1, 2}},
		"leads the default group":                    {view(3, 1, 1, 2).with(low), 3, []uint32{0}, []uint64{2, 1}},
		"leads all":                                  {view(3, 3).with(low), 3, []uint32{1, 0}, []uint64{1, 2}},
		"another one leads":                          {view(1, 1, 1, 3).with(low), 1, nil, nil},
		"leads none":                                 {view(1, 2, 1).with(low), 3, nil, nil},
		"a preferred one is down":                    {view(3, 2, 3).with(low, 1), 3, []uint32{2, 0}, []uint64{2}},
		"the preferred ones are down":                {view(3, 3, 3).with(low, 1, 2), 3, nil, nil},
		"a preferred one does not reach all":         {view(3, 3).with([]int32{0, 0, -1, -1}).cut(1, 4), 3, []uint32{1, 0}, []uint64{2}},
		"the preferred ones do not reach each other": {view(3, 3).with(low).cut(1, 2), 3, nil, nil},
		"one does not reach one that is down":        {view(3, 3).with(low, 2).cut(1, 2), 3, []uint32{1, 0}, []uint64{1}},
		"several priorities":                         {view(1, 1).with([]int32{-9, 1, 5, 1, 0, -10}), 1, []uint32{1, 0}, []uint64{3, 2, 4, 5}},
		"two low ones lead":                          {view(1, 3, 1).with([]int32{0, 7, 0}), 3, []uint32{1}, []uint64{2}},
		"another group's leader is down":             {view(3, 1).with(low, 1), 3, []uint32{0}, []uint64{2}},
		"another group has none":                     {view(3, 0).with(low), 3, []uint32{0}, []uint64{1, 2}},
		"another group's voters differ":              {differ, 3, []uint32{0}, []uint64{2, 1}},
		"a standby":                                  {view(3, 3).with(low), 4, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := new(hysteresis)
			if due, _ := looks(h, test.self, settledLooks-1, test.view); due != nil {
				t.Error("a move is due too early")
			}
			if m := h.look(test.self, test.view); m.Priority != (test.to != nil) || m.Priority && !reflect.DeepEqual(m, Move{test.groups, test.to, true}) {
				t.Errorf("%+v", m)
			}
		})
	}
}

// What a move to a voter of higher priority depends on has to be settled: that the voter can lead, its priority, and that this member leads. What else
// changes does not matter.
func TestByPriority_Settled(t *testing.T) {
	low := []int32{0, 0, -1}
	led := view(3, 1).with(low)
	for name, test := range map[string]struct {
		between View
		look    int // after it, at which a move is due
		to      []uint64
	}{
		"voter down":            {view(3, 1).with(low, 1), 1, []uint64{2}},
		"voter of low priority": {view(3, 1).with([]int32{-1, 0, -1}), 1, []uint64{2}},
		"voters apart":          {led.cut(1, 2), settledLooks, []uint64{2, 1}},
		"another leader":        {view(1, 1).with(low), settledLooks, []uint64{2}},
		"no leader":             {view(0, 1).with(low), settledLooks, []uint64{2, 1}},
		"another group created": {view(3, 1, 2).with(low), 1, []uint64{2, 1}},
		"another group's":       {view(3, 2).with(low), 1, []uint64{2, 1}},
	} {
		h := new(hysteresis)
		looks(h, 3, 100, led)
		h.look(3, test.between)
		n, m := 1, h.look(3, led)
		for ; !m.Priority && n < 100; n++ {
			m = h.look(3, led)
		}
		if n != test.look || !reflect.DeepEqual(m.To, test.to) {
			t.Errorf("%s: due at look %d, %+v", name, n, m)
		}
	}
}

// A voter to which a transfer has failed, or that has lost a leadership to this member, gets none for some time: others do.
func TestByPriority_Pause(t *testing.T) {
	led := view(3, 3, 1).with([]int32{0, 5, -1})
	h := new(hysteresis)
	_, m := looks(h, 3, settledLooks, led)
	h.tried(m.Groups[0], m.To[0], Failed) // the second has priority 5
	due, m := looks(h, 3, failedLooks-1, led)
	if len(due) != failedLooks-1 || !reflect.DeepEqual(m.To, []uint64{1}) {
		t.Errorf("after a failure: due at looks %v, %+v", due, m)
	}
	if m := h.look(3, led); !reflect.DeepEqual(m.To, []uint64{2, 1}) {
		t.Errorf("in the end: %+v", m)
	}
	h.tried(1, 2, Moved)
	moved := view(3, 2, 1).with([]int32{0, 5, -1})
	looks(h, 3, 10, moved)
	lost := view(3, 3, 1).with([]int32{0, 5, -1})
	lost.Leaders[1].Term += 2
	if m := h.look(3, lost); !reflect.DeepEqual(m, Move{[]uint32{0}, []uint64{1}, true}) {
		t.Errorf("after a loss: %+v", m)
	}
	if _, m := looks(h, 3, failedLooks, lost); !reflect.DeepEqual(m.To, []uint64{2, 1}) {
		t.Errorf("long after a loss: %+v", m)
	}
}

// The group that was tried last is tried last the next time.
func TestByPriority_Rotates(t *testing.T) {
	h, led := new(hysteresis), view(3, 3, 1, 3).with([]int32{0, 0, -1})
	looks(h, 3, settledLooks, led)
	for after, want := range map[uint32][]uint32{0: {1, 3, 0}, 1: {3, 0, 1}, 3: {0, 1, 3}} {
		h.tried(after, 1, Refused)
		if m := h.look(3, led); !reflect.DeepEqual(m.Groups, want) {
			t.Errorf("after %d: %v, want %v", after, m.Groups, want)
		}
	}
}

// The first leader of a new group is a voter of the highest priority that is connected; of several ones each leads its part of the groups. Where no majority is
// connected, no priority counts.
func TestFirst(t *testing.T) {
	const down = -1000
	for name, test := range map[string]struct {
		priorities []int32  // of the voters 1, 2 and so on
		want       []uint64 // of the groups 0, 1 and so on
	}{
		"equal":               {[]int32{0, 0, 0}, []uint64{1, 2, 3, 1, 2, 3}},
		"one is lower":        {[]int32{0, -1, 0}, []uint64{1, 3, 1, 3}},
		"one is higher":       {[]int32{-100, -3, -100}, []uint64{2, 2, 2}},
		"each another":        {[]int32{4, 5, 6}, []uint64{3, 3, 3}},
		"the highest is down": {[]int32{1, 1, down}, []uint64{1, 2, 1, 2}},
		"and the next leads":  {[]int32{1, 0, down}, []uint64{1, 1, 1}},
		"no majority":         {[]int32{7, down, down}, []uint64{1, 2, 3, 1}},
		"half of four":        {[]int32{7, 7, down, down}, []uint64{1, 2, 3, 4}},
		"alone":               {[]int32{-5}, []uint64{1, 1}},
	} {
		var voters []uint64
		for i := range test.priorities {
			voters = append(voters, uint64(i+1))
		}
		for group, want := range test.want {
			got := First(uint32(group), voters, func(id uint64) (int32, bool) {
				p := test.priorities[id-1]
				return p, p != down
			})
			if got != want {
				t.Errorf("%s: group %d: %d, want %d", name, group, got, want)
			}
		}
	}
}
