package cluster

import (
	"slices"
	"testing"
)

// Who takes part hears what was loaded before anything of it is reported.
func TestRestoredComesFirst(t *testing.T) {
	var heard []string // by the loop's goroutine, which has ended when it is looked at
	cfg := alone(t)
	cfg.Restored = func(Machine) { heard = append(heard, "restored") }
	cfg.LeaderChanged = func(uint64, uint64) { heard = append(heard, "leader") }
	m := start(t, cfg)
	looked := false
	if err := m.Look(t.Context(), func(m Machine) { looked = m != nil }); err != nil || !looked {
		t.Fatal(looked, err)
	}
	if err := m.Read(t.Context(), func(Machine) {}); err != nil { // there is a leader then
		t.Fatal(err)
	}
	m.Stop()
	if len(heard) < 2 || heard[0] != "restored" || slices.Contains(heard[1:], "restored") {
		t.Fatalf("heard %q", heard)
	}
}
