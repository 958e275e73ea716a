package groups

import (
	"strings"
	"testing"

	gt "github.com/conclave-go/conclave/internal/grouptest"
)

// A member that is partitioned knows no leader of the further groups, and names them. It serves them again when it
// reaches the others.
func TestHealth_FurtherGroupsWithoutLeader(t *testing.T) {
	t.Parallel()
	g := start(t, 3, gt.MemoryNetwork)
	for _, name := range []string{"b", "a"} {
		gt.MustPut(t, create(t, g.Nodes[0], name).KV(), "k", "v")
	}
	gt.AwaitHealth(t, g.Nodes[2], "")
	g.Net.Isolate(2)
	text := gt.AwaitHealth(t, g.Nodes[2], "leader groups")
	for _, c := range g.Nodes[2].Health().Reasons {
		if c.Name == "groups" && (!c.Warning || c.Live || c.OK) {
			t.Errorf("%+v", c)
		}
	}
	gt.WantHealth(t, g.Nodes[2], true, false)
	if !strings.Contains(text, "of 2 further groups: group ") {
		t.Error(text)
	}
	for _, i := range g.Others(2) {
		gt.AwaitHealth(t, g.Nodes[i], "")
	}
	g.Net.Rejoin(2)
	gt.AwaitHealth(t, g.Nodes[2], "")
}
