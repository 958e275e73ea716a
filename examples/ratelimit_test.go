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

// Two permits for three processes. One holds its permit for an hour and is
// killed: the others have one permit until its TTL has passed, and then two. By
// the journal, never more than two were at work.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	journal := filepath.Join(t.TempDir(), "journal")
	own := func(name string) []string {
		if name == "anna" {
			return []string{"-workers", "1", "-work", "1h"}
		}
		return []string{"-workers", "2", "-work", "20ms"}
	}
	all := trio(t, "ratelimit", own, "-ttl", "2s", "-limit", "2", "-journal", journal)
	anna, ben, clara := all[0], all[1], all[2]
	anna.expect(`anna/1 works, fence \d+$`)
	for _, p := range []*process{ben, clara, ben, clara} { // in turn, on the permit that is left
		p.expect(`works, fence \d+$`)
		p.expect(`is done, fence \d+$`)
	}
	before := len(entries(t, journal))
	anna.kill()
	for deadline := time.Now().Add(patience); atOnce(entries(t, journal)[before:]) < 2; {
		if ben.expect(`works, fence \d+$`); time.Now().After(deadline) {
			t.Fatalf("anna's permit has not come back in %v", patience)
		}
	}
	leave(t, ben, clara)

	book := entries(t, journal)
	if most := max(atOnce(book[:before]), atOnce(without("anna/1", book))); most > 2 {
		t.Errorf("%d of at most 2 were at work at once:\n%v", most, book)
	}
}

// entry is a line of the journal.
type entry struct{ what, who string }

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

func without(who string, all []entry) []entry {
	return slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return e.who == who })
}

// atOnce is how many workers were at work at the same time, at most.
func atOnce(all []entry) (most int) {
	working := make(map[string]bool)
	for _, e := range all {
		if e.what == "begin" {
			working[e.who] = true
		} else {
			delete(working, e.who)
		}
		most = max(most, len(working))
	}
	return most
}
