package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pprofile "github.com/google/pprof/profile"
)

// The mode measures members that are processes, and compares them with the model.
func TestScale(t *testing.T) {
	if _, err := cpuTime(); err != nil {
		t.Skip(err)
	}
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	plan := scalePlan{
		length: 100 * time.Millisecond, groups: 1, single: []load{{1, 2}, {1, 32}}, several: load{1, 8},
		checks: []check{{procs: 1, load: load{1, 8}}},
	}
	r, err := plan.measure(t.Context(), dataPlace{"on disk", dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range append(r.single, r.checks...) {
		if run.cycles <= 0 || run.entries <= 0 || run.commands < run.entries || run.synced() <= 0 || run.cpu() < 0 {
			t.Errorf("%+v", run)
		}
	}
	if r.alone <= 0 || r.together <= 0 {
		t.Errorf("syncs take %v alone, %v together", r.alone, r.together)
	}
	var out bytes.Buffer
	reportScale(&out, []scaleResult{r})
	if lines := strings.Count(out.String(), "\n|"); lines != (2+int(tasks)+2)+2*(2+len(modelledGroups))+(2+1) || strings.Contains(out.String(), "NaN") {
		t.Errorf("%d lines of tables:\n%s", lines, &out)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the members' data is left: %v", err)
	}
}

// A member that cannot open its data ends the others, which would wait for it to form the group.
func TestScale_MemberFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := startMembers(t.Context(), dir, 1); err == nil || !strings.Contains(err.Error(), "m1") {
		t.Errorf("a file in place of a directory: %v", err)
	}
}

func TestServeMember(t *testing.T) {
	var out bytes.Buffer
	if err := serveMember(strings.NewReader(""), &out); err != nil || !strings.Contains(out.String(), `"Address":"127.0.0.1:`) {
		t.Errorf("%v: %s", err, &out)
	}
	if err := serveMember(strings.NewReader("no order"), io.Discard); err == nil {
		t.Error("accepted what is no order")
	}
}

func TestOthers(t *testing.T) {
	busy, ok := busyIn("cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2\n")
	if !ok || busy != 1710*time.Millisecond {
		t.Errorf("busy for %v, %v", busy, ok)
	}
	if _, ok := busyIn("intr 1 2 3"); ok {
		t.Error("busy without a line of processors")
	}
	if used := (others{began: time.Now().Add(-time.Second)}).since(0); used != 0 {
		t.Errorf("%v processors where nothing counts them", used)
	}
}

func TestTaskOf(t *testing.T) {
	in := func(name string) *pprofile.Location {
		return &pprofile.Location{Line: []pprofile.Line{{Function: &pprofile.Function{Name: name}}}}
	}
	labels := func(pairs ...string) map[string][]string {
		m := make(map[string][]string)
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = []string{pairs[i+1]}
		}
		return m
	}
	flush, commit := in("github.com/cockroachdb/pebble/v2.(*DB).flush"), in("github.com/cockroachdb/pebble/v2.(*Batch).Commit")
	for _, test := range []struct {
		sample pprofile.Sample
		want   task
	}{
		{pprofile.Sample{Label: labels("conclave", "000000000000002a", "goroutine", "loop")}, looping},
		{pprofile.Sample{Label: labels("conclave", "000000000000002a", "goroutine", "groups")}, remaining},
		{pprofile.Sample{Label: labels("conclave", "transport", "goroutine", "peer writer")}, connecting},
		{pprofile.Sample{Label: labels("conclave", "storage"), Location: []*pprofile.Location{commit}}, storing},
		{pprofile.Sample{Label: labels("conclave", "storage"), Location: []*pprofile.Location{commit, flush}}, remaining},
		{pprofile.Sample{Label: labels("bench", "caller")}, calling},
		{pprofile.Sample{}, remaining},
	} {
		if got := taskOf(&test.sample); got != test.want {
			t.Errorf("%+v: %s, want %s", test.sample.Label, taskNames[got], taskNames[test.want])
		}
	}
	if _, err := divide([]byte("no profile")); err == nil {
		t.Error("divided what is no profile")
	}
}
