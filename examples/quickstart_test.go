package examples

import (
	"os"
	"strings"
	"testing"
)

func TestQuickstart_AllChapters(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	p := start(t, "quickstart", tempEnv(temp), "quickstart")
	for _, line := range []string{
		`^1\. A group forms`,
		`leads the group`,
		`^2\. One holder at a time`,
		`anna +Lock +granted, fence 1$`,
		`ben +TryLock +refused: `,
		`ben +Lock +granted, fence 2 > 1`,
		`clara +Lock +granted, fence 3 > 2`,
		`^3\. Re-entry`,
		`granted, fence 4`,
		`granted, fence 4`,
		`Lock +refused: .*limit`,
		`^4\. The holder crashes`,
		`killed +no graceful shutdown`,
		`still waiting for \w+'s session to expire`,
		`granted, fence 6 > 5`,
		`ledger +refuses +\w+'s late write with fence 5`,
		`Open +restarted`,
		`^5\. An operator steps in`,
		`CloseSession`,
		`Lost`,
		`Lock +refused: .*ownership`,
		`^6\. A graceful shutdown`,
		`Close +shuts down gracefully`,
		`granted, fence 10 > 9`,
		`^7\. The leader crashes`,
		`killed +it was the leader`,
		`granted, fence 12 > 11`,
		`exactly one hold`,
		`^All 7 chapters passed`,
	} {
		p.expect(line)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	checkEmpty(t, temp)
}

// checkEmpty checks that a program has removed its temporary files.
func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("got files %v and error %v, want none", files, err)
	}
}

// A failure is printed, and the exit status is 1.
func TestQuickstart_NoTempFolder(t *testing.T) {
	t.Parallel()
	p := start(t, "quickstart", tempEnv("/nowhere"), "quickstart")
	if status := p.wait(); status != 1 || !strings.Contains(strings.Join(p.text(), " "), "quickstart: ") {
		t.Errorf("exit status %d, output %q; want 1 and the error", status, p.text())
	}
}
