package grouptest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// A flipped bit in one member's memory, leader or follower, stops that member and no
// other. Its directory is refused from then on, and the group continues, also while the
// refused member is started again and again.
func TestDivergence_OnlyFaultyMemberStops(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{true, false} {
		t.Run(fmt.Sprintf("leads=%t", leads), func(t *testing.T) {
			t.Parallel()
			g := Start(t, 3)
			g.WantWorking()
			faulty := g.Leader()
			if !leads {
				faulty = g.Others(faulty)[0]
			}
			g.FlipBit(faulty)
			others := g.Others(faulty)
			l := g.Nodes[others[0]].FencedLock("x")
			MustLock(t, l) // an entry that the flip shows in
			n := g.Nodes[faulty]
			select {
			case <-n.Done():
			case <-time.After(g.patience):
				t.Fatal("the faulty member does not stop")
			}
			if err := n.Err(); !errors.Is(err, conclave.ErrCorrupt) {
				t.Errorf("the faulty member stops with %v", err)
			}
			g.Nodes[faulty] = nil
			for range 2 {
				if n, err := g.Open(faulty, g.patience); !errors.Is(err, conclave.ErrCorrupt) {
					t.Errorf("started again: %v, %v", n, err)
				}
			}
			MustUnlock(t, l)
			g.WantWorking()
			for _, i := range others {
				if err := g.Nodes[i].Err(); err != nil {
					t.Errorf("member %d has stopped: %v", i, err)
				}
			}
		})
	}
}

// While one of three voters is down, the other two differ and no majority agrees: both
// continue. The third one decides.
func TestDivergence_OneVoterDown(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	g.WantWorking()
	leader := g.Leader()
	down, faulty := g.Others(leader)[0], g.Others(leader)[1]
	g.Kill(down)
	g.FlipBit(faulty)
	l := g.Nodes[leader].FencedLock("x")
	for range 3 {
		MustLock(t, l)
		MustUnlock(t, l)
	}
	g.AwaitApplied(faulty)
	for _, i := range []int{leader, faulty} {
		if err := g.Nodes[i].Err(); err != nil {
			t.Fatalf("member %d has stopped: %v", i, err)
		}
	}
	node, err := g.Open(down, g.patience)
	if err != nil {
		t.Fatal(err)
	}
	g.Nodes[down] = node
	select {
	case <-g.Nodes[faulty].Done():
	case <-time.After(g.patience):
		t.Fatal("the faulty member does not stop")
	}
	g.Nodes[faulty] = nil
	g.WantWorking()
}
