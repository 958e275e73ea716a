//go:build unix

package process

import (
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// A process that is stopped accepts connections and closes none. So the failure detector declares it dead, and the voters do
// not take it for crashed: what it holds is its own when it continues.
func TestProcessCheck_Paused(t *testing.T) {
	t.Parallel()
	g := processesWith(t, 3, checked())
	g.awaitAllConnected()
	holder := (g.leader() + 1) % 3
	paused, other := g.members[holder], g.members[(holder+1)%3]
	fence := paused.must("lock", "x")
	r, err := paused.do(order{Do: "status"})
	if err != nil {
		t.Fatal(err)
	}

	paused.stop()
	var critical []string
	for !slices.Contains(critical, "gossip") {
		answer, err := other.do(order{Do: "critical", Member: r.Member})
		if err != nil {
			t.Fatal(err)
		}
		critical = answer.Critical
		<-time.After(5 * time.Millisecond) // no report signals it
	}
	if slices.Contains(critical, conclave.ProcessCheck) {
		t.Errorf("critical: %v", critical)
	}
	_, err = other.ask("try", "x")
	wantIs(t, err, conclave.ErrLocked)

	paused.resume()
	if again := paused.must("fence", "x"); again != fence {
		t.Errorf("fence %v has become %v", fence, again)
	}
}
