package slots

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// fill takes places and returns how many connections of each host were evicted.
func fill(s *Slots, evicted map[string]int, host string, known bool, n int) (refused int) {
	for range n {
		if s.Begin(host, known, true, func() { evicted[host]++ }) == nil {
			refused++
		}
	}
	return refused
}

func TestSlots_SharedByHost(t *testing.T) {
	for _, c := range []struct {
		name    string
		take    func(s *Slots, evicted map[string]int) (refused int)
		evicted map[string]int
		refused int
	}{
		{"one host takes its own places late", func(s *Slots, e map[string]int) int {
			refused := fill(s, e, "a", false, 10)
			time.Sleep(slotGrace)
			return refused + fill(s, e, "a", false, 10)
		}, map[string]int{"a": 10}, 0},
		{"one host takes none of its own places early", func(s *Slots, e map[string]int) int { return fill(s, e, "a", false, 30) }, map[string]int{}, 20},
		{"a host takes early from one with more", func(s *Slots, e map[string]int) int {
			return fill(s, e, "a", false, 10) + fill(s, e, "b", false, 30)
		}, map[string]int{"a": 5}, 25},
		{"others take from the host with most", func(s *Slots, e map[string]int) int {
			return fill(s, e, "a", false, 10) + fill(s, e, "b", false, 3) + fill(s, e, "c", false, 3)
		}, map[string]int{"a": 6}, 0},
		{"the host of a member takes from others", func(s *Slots, e map[string]int) int {
			return fill(s, e, "a", false, 10) + fill(s, e, "member", true, 10)
		}, map[string]int{"a": 10}, 0},
		{"others take none of the host of a member", func(s *Slots, e map[string]int) int {
			return fill(s, e, "member", true, 10) + fill(s, e, "a", false, 5)
		}, map[string]int{}, 5},
		{"a member's host, when all are", func(s *Slots, e map[string]int) int { return fill(s, e, "member", true, 15) }, map[string]int{"member": 5}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, evicted := New(10), make(map[string]int)
				if refused := c.take(s, evicted); refused != c.refused || fmt.Sprint(evicted) != fmt.Sprint(c.evicted) || len(s.open) > 10 {
					t.Errorf("%d refused, %v evicted, %d open, want %d and %v", refused, evicted, len(s.open), c.refused, c.evicted)
				}
			})
		})
	}
}

// While a group forms there are no clients, so idle connections never keep out a founder on the
// same host.
func TestSlots_FormingTakesEarly(t *testing.T) {
	s, evicted := New(10), 0
	for range 100 {
		if s.Begin("a", false, false, func() { evicted++ }) == nil {
			t.Fatal("refused")
		}
	}
	if evicted != 90 {
		t.Errorf("%d evicted, want 90", evicted)
	}
}

func TestSlots_EndFreesPlace(t *testing.T) {
	s := New(1)
	first := s.Begin("a", true, true, func() { t.Error("evicted after its end") })
	s.End(first)
	evicted := false
	second := s.Begin("a", true, true, func() { evicted = true })
	third := s.Begin("a", true, true, func() { t.Error("evicted") })
	if !evicted || second == nil || third == nil {
		t.Error("the oldest connection was not evicted")
	}
	s.End(second) // again
	s.End(third)
	if len(s.open) != 0 {
		t.Errorf("%d places are taken", len(s.open))
	}
}

// The connection that loses its place learns of it at its own end, also before it is closed.
func TestSlots_EndReportsEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		var first *Slot
		asked := false
		first = s.Begin("a", false, false, func() { asked = true; wantEnd(t, s, first, false) })
		second := s.Begin("b", true, false, func() {})
		if !asked {
			t.Error("the first one kept its place")
		}
		wantEnd(t, s, first, false)
		wantEnd(t, s, second, true)
		wantEnd(t, s, second, false)
	})
}

func wantEnd(t *testing.T, s *Slots, of *Slot, had bool) {
	t.Helper()
	if s.End(of) != had {
		t.Errorf("End returns %t", !had)
	}
}

// On the host of a member, its clients lose their places before the member does.
func TestSlots_ClientsYield(t *testing.T) {
	s := New(3)
	var evicted []string
	take := func(name, host string) *Slot {
		return s.Begin(host, true, true, func() { evicted = append(evicted, name) })
	}
	take("member", "a")
	s.Yield(take("client", "a"))
	s.Yield(take("client elsewhere", "b"))
	for _, name := range []string{"new 1", "new 2"} {
		s.Yield(take(name, "a"))
	}
	if want := []string{"client", "new 1"}; !slices.Equal(evicted, want) {
		t.Errorf("evicted %q, want %q", evicted, want)
	}
	s.Yield(nil)
}

func TestHostOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:70":               "192.0.2.1",
		"[::ffff:192.0.2.1]:70":      "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:70":  "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1%x]:7": "2001:db8:1:2::/64",
		"[2001:db8:1:3::1]:70":       "2001:db8:1:3::/64",
		"example.com:70":             "example.com",
		"in memory":                  "in memory",
	} {
		var a net.Addr = Address(addr)
		if got := HostOf(a); got != want {
			t.Errorf("%q: got %q, want %q", addr, got, want)
		}
	}
}
