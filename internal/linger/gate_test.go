package linger

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestGate(t *testing.T) {
	var g Gate
	want := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %t", what, got)
		}
	}
	exit := func(wantOK, wantLast bool) {
		t.Helper()
		if ok, last := g.Exit(); ok != wantOK || last != wantLast {
			t.Errorf("Exit: %t, %t; want %t, %t", ok, last, wantOK, wantLast)
		}
	}
	exit(false, false)
	want("a re-entry without a hold", g.Reenter(0), false)
	want("the first hold", g.Enter(2), true)
	want("the second hold", g.Enter(2), true)
	want("beyond the limit", g.Enter(2), false)
	want("it is used while there are holds", g.Used(), true)
	want("a gate with holds is retired", g.Retire(), false)
	exit(true, false)
	exit(true, false)
	want("it was used", g.Used(), true)
	want("it was not used since", g.Used(), false)
	g.Watch(true)
	want("a hold of a watched gate", g.Enter(0), true)
	exit(true, true)
	g.Watch(false)
	want("the first hold", g.Enter(0), true)
	g.Close()
	want("a newcomer at a closed gate", g.Enter(0), false)
	want("a re-entry at a closed gate", g.Reenter(2), true)
	want("a re-entry beyond the limit", g.Reenter(2), false)
	want("an owner that came before", g.Admit(3), true)
	if g.Holds() != 3 {
		t.Errorf("%d holds, want 3", g.Holds())
	}
	exit(true, false)
	exit(true, false)
	exit(true, true)
	want("a re-entry after the last hold", g.Reenter(0), false)
}

func TestGate_Retire(t *testing.T) {
	var g Gate
	if !g.Retire() || g.Enter(0) || g.Holds() != 0 {
		t.Error("a gate without holds is retired, and closed")
	}
}

// However owners enter and exit when the gate is closed, one of them learns that it was the last, or
// there is none.
func TestGate_ClosedMeanwhile(t *testing.T) {
	for range 2000 {
		var (
			g      Gate
			owners sync.WaitGroup
			lasts  atomic.Int32
		)
		for range 4 {
			owners.Go(func() {
				for range 10 {
					if g.Enter(0) {
						if _, last := g.Exit(); last {
							lasts.Add(1)
						}
					}
				}
			})
		}
		g.Close()
		inside := g.Holds() > 0
		owners.Wait()
		if n := lasts.Load(); n > 1 || inside && n == 0 || g.Holds() != 0 {
			t.Fatalf("%d owners were the last, inside at the close: %t; %d holds are left", n, inside, g.Holds())
		}
	}
}
