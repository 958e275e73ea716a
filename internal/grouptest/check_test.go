package grouptest

import (
	"testing"

	"github.com/conclave-go/conclave"
)

// A check belongs to the member: it keeps its state across a restart, and other members
// cannot use it.
func TestCheck_Restart(t *testing.T) {
	t.Parallel()
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
	MustCheck(t, g.Nodes[0], "failed", 0) // registering passes it
	MustSession(t, g.Nodes[0], &conclave.SessionConfig{Checks: []string{"failed"}})
}
