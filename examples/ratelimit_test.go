//go:build unix

package examples

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Three processes share two permits. One holds its permit for an hour and is
// killed: the others share one permit until its session expires, and then two.
// The journal shows that no more than two workers worked at once.
func TestRateLimit_HolderKilled(t *testing.T) {
	t.Parallel()
	journal := filepath.Join(t.TempDir(), "journal")
	own := func(name string) []string {
		if name == "anna" {
			return []string{"-workers", "1", "-work", "1h"}
		}
		return []string{"-workers", "2", "-work", "20ms"}
	}
	all := startGroup(t, "ratelimit", own, "-ttl", "10s", "-limit", "2", "-journal", journal)
	anna, ben, clara := all[0], all[1], all[2]
	anna.expect(`anna/1 works, fence \d+$`)
	for _, p := range []*process{ben, clara, ben, clara} { // in turn, with the remaining permit
		p.expect(`works, fence \d+$`)
		p.expect(`is done, fence \d+$`)
	}
	before := len(entries(t, journal))
	anna.kill()
	for deadline := time.Now().Add(waitTimeout); atOnce(entries(t, journal)[before:]) < 2; {
		if ben.expect(`works, fence \d+$`); time.Now().After(deadline) {
			t.Fatalf("anna's permit is not released in %v", waitTimeout)
		}
	}
	interrupt(t, ben, clara)

	written := entries(t, journal)
	if most := max(atOnce(written[:before]), atOnce(without("anna/1", written))); most > 2 {
		t.Errorf("%d workers worked at once, want at most 2:\n%v", most, written)
	}
}

// entry is a line of the journal.
type entry struct{ what, worker string }

func entries(t *testing.T, journal string) []entry {
	t.Helper()
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	var all []entry
	for _, line := range strings.SplitAfter(string(text), "\n") {
		if fields := strings.Fields(line); strings.HasSuffix(line, "\n") {
			all = append(all, entry{fields[0], fields[1]})
		}
	}
	return all
}

func without(worker string, all []entry) []entry {
	return slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return e.worker == worker })
}

// atOnce returns the largest number of workers that worked at the same time.
func atOnce(all []entry) (most int) {
	working := make(map[string]bool)
	for _, e := range all {
		if e.what == "begin" {
			working[e.worker] = true
		} else {
			delete(working, e.worker)
		}
		most = max(most, len(working))
	}
	return most
}
