//go:build unix

package examples

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// The process that runs the job is killed before it is done. Another one runs the
// job for the same period with a larger fence, and the third does not repeat it.
func TestExclusiveJob_RunnerKilled(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "report.json")
	// The period is a week, so it does not change during the test, except on rare
	// midnights, when the third process runs the job of the new week.
	all := startGroup(t, "exclusivejob", nil, "-ttl", "10s", "-every", "168h", "-takes", "20s", "-store", store)
	killed, period, fence := runner(t, all[:])
	killed.expectKillCommand()
	killed.kill()
	if _, err := os.Stat(store); !os.IsNotExist(err) {
		t.Fatalf("the job was done before its process was killed: %v", err)
	}

	rest := make([]*process, 0, 2)
	for _, p := range all {
		if p != killed {
			rest = append(rest, p)
		}
	}
	successor, again, next := runner(t, rest)
	if again != period || next <= fence {
		t.Errorf("got the job of %s with fence %d, want that of %s with a fence larger than %d", again, next, period, fence)
	}
	successor.expect(`finished the job of`)
	for _, p := range rest {
		if p != successor {
			p.expect(`the job of .+ was done by ` + successor.name)
		}
	}
	var last struct {
		Fence string
		By    string
	}
	text, err := os.ReadFile(store)
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err != nil || last.Fence != strconv.Itoa(next) || last.By != successor.name {
		t.Errorf("the store has %s (error %v), want fence %d by %s", text, err, next, successor.name)
	}
	interrupt(t, rest...)
}

// runner waits until one of the processes runs the job.
func runner(t *testing.T, among []*process) (p *process, period string, fence int) {
	t.Helper()
	p, match := expectAny(t, `RUNS the job of (.+) with fence (\d+)$`, among...)
	return p, match[0], number(t, match[1])
}
