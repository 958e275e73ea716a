package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
)

func TestJobs(t *testing.T) {
	n := member(t, "")
	if out := must(t, n, "jobs"); strings.Count(out, "\n") != 1 {
		t.Error(out)
	}
	must0(t, n.Job("nightly").Once(within(t), "2026-11-25", func(context.Context, conclave.Fence) error { return nil }))
	full := errors.New("the disk\x1b is full")
	if err := n.Job("nightly").Once(within(t), "2026-11-26", func(context.Context, conclave.Fence) error { return full }); !errors.Is(err, full) {
		t.Fatal(err)
	}
	err := n.Job("nightly").Once(within(t), "2026-11-27", func(context.Context, conclave.Fence) error {
		want(t, conclaveAt(n, "jobs", "nightly", "--delete"), 4, "under way")
		if j := decoded[jobView](t, must(t, n, "jobs", "-o", "json")); j.Name != "nightly" || j.Running != 1 || j.Runs != nil {
			t.Errorf("%+v", j)
		}
		j := decoded[jobView](t, must(t, n, "jobs", "nightly", "-o", "json"))
		if len(j.Runs) != 3 || j.Runs[0].Result != "running" || j.Runs[0].Ended != nil || j.Runs[1].Error != full.Error() || j.Runs[2].NodeName != "anna" || j.Runs[2].Ended == nil {
			t.Errorf("%+v", j)
		}
		out := must(t, n, "jobs", "nightly")
		for _, part := range []string{"1 under way, 0 awaited", "KEY         RESULT   ATTEMPT", "2026-11-25  done     1", "2026-11-26  failed   1", "2026-11-27  running  1", `disk\x1b is full`, "anna"} {
			if !strings.Contains(out, part) {
				t.Errorf("%q is missing in\n%s", part, out)
			}
		}
		return nil
	})
	must0(t, err)
	if r := conclaveAt(n, "__complete", "jobs", ""); !strings.HasPrefix(r.out, "nightly\n:") {
		t.Errorf("completion: %q", r.out)
	}
	want(t, conclaveAt(n, "jobs", "--delete"), 2, "missing NAME")
	if out := must(t, n, "jobs", "nightly", "--delete"); !strings.Contains(out, "nightly is deleted") {
		t.Error(out)
	}
	if out := must(t, n, "jobs", "nightly", "-o", "json"); strings.Contains(out, "runs") {
		t.Error(out)
	}
}
