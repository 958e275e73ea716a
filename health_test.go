package conclave_test

import (
	"context"
	"slices"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// healthChecks are the names in the order of Health.Reasons.
var healthChecks = []string{"node", "loop", "shutdown", "member", "leader", "caught-up", "progress", "resources", "disk", "groups"}

func TestHealth_Alone(t *testing.T) {
	n := grouptest.Alone(t)
	h := n.Health()
	if !h.Live || !h.Ready || h.Redundancy != 0 {
		t.Fatalf("%+v", h)
	}
	var names []string
	for _, c := range h.Reasons {
		names = append(names, c.Name)
		if !c.OK || c.Text != "" || c.Live != (c.Name == "node" || c.Name == "loop") || c.Warning != (c.Name == "disk" || c.Name == "groups") {
			t.Errorf("%+v", c)
		}
	}
	if !slices.Equal(names, healthChecks) {
		t.Errorf("checks %v; want %v", names, healthChecks)
	}
}

func TestHealth_Closed(t *testing.T) {
	n := grouptest.Alone(t)
	grouptest.Must(t, n.Close(context.Background()))
	h := n.Health()
	if h.Live || h.Ready || len(h.Reasons) != len(healthChecks) {
		t.Fatalf("%+v", h)
	}
	for _, c := range h.Reasons {
		if c.OK || c.Text == "" {
			t.Errorf("%+v", c)
		}
	}
}

// Nothing that a probe of each second does may cost the loop or the network anything.
func BenchmarkHealth(b *testing.B) {
	n, err := conclave.Open(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer grouptest.Kill(n)
	for b.Loop() {
		n.Health()
	}
}
