package grouptest

import (
	"testing"

	"github.com/conclave-go/conclave"
)

// A check belongs to the member: it outlives the process, in the state that it
// had, and is of no use to other members.
func TestCheckOutlivesItsProcess(t *testing.T) {
	g := Start(t, 3)
	failed := MustCheck(t, g.Nodes[0], "failed", 0)
	Must(t, failed.Fail(t.Context()))
	MustCheck(t, g.Nodes[0], "passing", 0)
	g.Kill(0)
	g.Start(0)
	MustSession(t, g.Nodes[0], &conclave.SessionConfig{Checks: []string{"passing"}})
	_, err := g.Nodes[0].NewSession(t.Context(), &conclave.SessionConfig{Checks: []string{"failed"}})
	WantError(t, err, conclave.ErrCheckCritical)
	_, err = g.Nodes[1].NewSession(t.Context(), &conclave.SessionConfig{Checks: []string{"passing"}})
	WantError(t, err, conclave.ErrInvalid)
	MustCheck(t, g.Nodes[0], "failed", 0) // registering counts as passing
	MustSession(t, g.Nodes[0], &conclave.SessionConfig{Checks: []string{"failed"}})
}
