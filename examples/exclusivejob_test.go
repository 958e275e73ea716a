//go:build unix

package examples

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// The process that runs the job is killed in the middle. Another one runs it for
// the same period under a larger fence, and the third does not run it again.
func TestExclusiveJob(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "report.json")
	// The period is a week, so it is the same one for the whole test, but on rare
	// midnights, when the third runs it for the new week.
	all := trio(t, "exclusivejob", nil, "-ttl", "2s", "-every", "168h", "-takes", "2s", "-store", store)
	ran, period, fence := runs(t, all[:])
	ran.kill()
	if _, err := os.Stat(store); !os.IsNotExist(err) {
		t.Fatalf("the run was over before it could be killed: %v", err)
	}

	rest := make([]*process, 0, 2)
	for _, p := range all {
		if p != ran {
			rest = append(rest, p)
		}
	}
	heir, again, next := runs(t, rest)
	if again != period || next <= fence {
		t.Errorf("the job of %s with fence %d after that of %s with fence %d", again, next, period, fence)
	}
	heir.expect(`is done with the job of`)
	for _, p := range rest {
		if p != heir {
			p.expect(`the job of .+ was done by ` + heir.name)
		}
	}
	var last struct {
		Fence int
		By    string
	}
	text, err := os.ReadFile(store)
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err != nil || last.Fence != next || last.By != heir.name {
		t.Errorf("the store has %s: %v", text, err)
	}
	leave(t, rest...)
}

// runs waits until one of the processes runs the job.
func runs(t *testing.T, among []*process) (by *process, period string, fence int) {
	t.Helper()
	by, match := whichever(t, `RUNS the job of (.+) with fence (\d+)$`, among...)
	return by, match[0], number(t, match[1])
}
