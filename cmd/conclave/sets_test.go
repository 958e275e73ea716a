//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
)

// The listings show which locks are held together, which waiters are sets, and for which set a lock is reserved.
func TestSets_InListings(t *testing.T) {
	n := member(t, "")
	held := n.LockSet([]string{"a", "b"}, conclave.Shared("r"), conclave.WithLabel("transfer"))
	_, err := held.Lock(within(t))
	must0(t, err)
	go func() { _, _ = n.LockSet([]string{"b", "x"}, conclave.WithLabel("import")).Lock(t.Context()) }()
	awaitWaiters(t, n.FencedLock("b"), 1)
	wantSets(t, must(t, n, "locks"), "a", "0", "held with b, r")
	wantSets(t, must(t, n, "locks"), "b", "1 (1 set)", "held with a, r")
	wantSets(t, must(t, n, "locks"), "r", "0", "held with a, b")
	wantSets(t, must(t, n, "locks"), "x", "1 (1 set)", "-")
	x := n.FencedLock("x")
	for range 4 { // until it is reserved
		_, err := x.Lock(within(t))
		must0(t, err)
		must0(t, x.Unlock(within(t)))
	}
	wantSets(t, must(t, n, "locks"), "b", "1 (1 set)", "held with a, r; reserved for a set")
	if l := decoded[lockView](t, must(t, n, "locks", "b", "-o", "json")); l.Set != 3 || !slices.Equal(l.SetWith, []string{"a", "r"}) || l.Sets != 1 || !l.Reserved {
		t.Errorf("%+v", l)
	}
	out := must(t, n, "top", "--once")
	wantSets(t, out, "b", "1 (1 set)", "held with a, r; reserved for a set of 2 of member anna, label import")
	wantSets(t, out, "x", "1 (1 set)", "reserved for a set of 2 of member anna, label import")
	for _, l := range decoded[[]contentionView](t, must(t, n, "top", "--once", "-o", "json")) {
		if l.Sets != 1 || l.ReservedFor == nil || l.ReservedFor.Label != "import" || (l.Lock == "b") != slices.Equal(l.SetWith, []string{"a", "r"}) {
			t.Errorf("%+v", l)
		}
	}
	if out := must(t, n, "explain", "b"); !strings.Contains(out, "held together: with a, r") || !strings.Contains(out, "1 (1 set)") {
		t.Error(out)
	}
}

// wantSets checks a row of a table: how many requests wait for the lock, and the last column.
func wantSets(t *testing.T, table, lock, waiters, sets string) {
	t.Helper()
	for line := range strings.Lines(table) {
		if cells := strings.Fields(line); slices.Contains(cells, lock) && (cells[0] == lock || !strings.HasPrefix(table, "LOCK")) {
			if line = strings.TrimSpace(line); !strings.Contains(line, " "+waiters+" ") || !strings.HasSuffix(line, "  "+sets) {
				t.Errorf("%q: want %q waiting, and %q", line, waiters, sets)
			}
			return
		}
	}
	t.Errorf("no lock %q in %s", lock, table)
}

// What a lock has of sets, as a cell of a table.
func TestSets_Text(t *testing.T) {
	queue := []conclave.LockOwner{{}, {Set: 2, Reserved: true, NodeName: "anna", Alive: true}}
	for _, row := range []struct{ got, want string }{
		{waitersOf(3, 0), "3"},
		{waitersOf(3, 2), "3 (2 sets)"},
		{setsOf(0, 0, 0, nil, ""), "-"},
		{setsOf(0, 0, 5, []string{"a", "b", "c"}, ""), "held with a, b, c and 1 more"},
		{setsOf(0, 0, 3, nil, ""), "held as a set of 3"},
		{setsOf(1, 1, 2, []string{"\x1b"}, ""), `held with \x1b`},
		{setsOf(3, 2, 2, []string{"b"}, ""), "2 sets among the holders, the first with b"},
		{setsOf(3, 1, 0, nil, ""), "1 set among the holders"},
		{setsOf(0, 0, 2, []string{"b"}, reservation(queue)), "held with b; reserved for a set of 2 of member anna"},
		{setsOf(0, 0, 0, nil, reservation(queue[:1])), "-"},
	} {
		if row.got != row.want {
			t.Errorf("%q, want %q", row.got, row.want)
		}
	}
}
