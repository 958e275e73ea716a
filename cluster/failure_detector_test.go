package cluster

import (
	"testing"

	"github.com/conclave-go/conclave/internal/fact"
)

// No process is reported dead while there is a live connection with its member, whatever
// gossip says.
func TestDetector_ConnectedIsNotReportedDead(t *testing.T) {
	connected := func(member uint64) bool { return member == 7 }
	due := withoutConnected([]fact.LivenessReport{
		{Member: 7, Boot: 3}, {Member: 8, Boot: 1}, {Member: 7, Boot: 3, Alive: true},
	}, connected)
	if len(due) != 2 || due[0].Member != 8 || !due[1].Alive {
		t.Errorf("reports %+v", due)
	}
}
