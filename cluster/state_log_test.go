package cluster

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/cluster/roster"
)

// The loss of the quorum is logged once, and so is its return; before the quorum was
// first there, nothing is.
func TestQuorumLog(t *testing.T) {
	roster := func(quorum bool) *roster.Snapshot {
		s := &roster.Snapshot{Members: []roster.Member{{ID: 1, Voter: true, Liveness: roster.Alive}, {ID: 2, Voter: true}, {ID: 3, Voter: true}}}
		if quorum {
			s.Members[1].Liveness = roster.Alive
		}
		return s
	}
	var out strings.Builder
	logger := slog.New(slog.NewTextHandler(&out, nil))
	var q quorumLog
	for _, quorum := range []bool{false, false, true, true, false, false, true, false} {
		q.note(logger, roster(quorum))
	}
	if lost, back := strings.Count(out.String(), "quorum lost"), strings.Count(out.String(), "quorum regained"); lost != 2 || back != 1 {
		t.Errorf("lost %d times, regained %d times:\n%s", lost, back, out.String())
	}
}
