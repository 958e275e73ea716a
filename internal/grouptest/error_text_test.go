package grouptest

import (
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
)

// The sentinel and what the member says of it are one sentence.
func TestError_TextWithoutRepetition(t *testing.T) {
	t.Parallel()
	g := Start(t, 2)
	Must(t, g.Nodes[0].Leave(Bounded(t)))
	g.Nodes[0] = nil
	g.AwaitMembers(1)
	last := g.Nodes[1].Leave(Bounded(t))
	WantError(t, last, conclave.ErrLastVoter)
	_, removed := g.Open(0, patience)
	WantError(t, removed, conclave.ErrRemoved)
	for phrase, err := range map[string]error{"last voter": last, "removed": removed} {
		if n := strings.Count(err.Error(), phrase); n != 1 {
			t.Errorf("%q is there %d times: %v", phrase, n, err)
		}
	}
}
