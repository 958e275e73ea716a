package examples

import (
	"os"
	"strings"
	"testing"
)

// The story is told to its end, in order, and leaves nothing behind.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	p := start(t, "quickstart", []string{"TMPDIR=" + temp}, "quickstart")
	for _, line := range []string{
		`^1\. A group forms`,
		`leads the group`,
		`^2\. One holder at a time`,
		`anna +Lock +granted, fence 1$`,
		`ben +TryLock +refused: locked by another owner`,
		`ben +Lock +granted, fence 2 > 1`,
		`clara +Lock +granted, fence 3 > 2`,
		`^3\. Re-entry`,
		`granted, fence 4`,
		`granted, fence 4`,
		`Lock +refused: the reentrant limit is reached`,
		`^4\. The holder dies`,
		`killed +without farewell`,
		`still waiting for \w+'s session to end`,
		`granted, fence 6 > 5`,
		`ledger +refuses +\w+'s late write with fence 5`,
		`Open +is back`,
		`^5\. An operator steps in`,
		`CloseSession`,
		`Lost`,
		`Lock +refused: the lock's ownership was lost`,
		`^6\. A farewell`,
		`Close +takes leave`,
		`granted, fence 10 > 9`,
		`^7\. The leader dies`,
		`killed +the leader`,
		`granted, fence 12 > 11`,
		`exactly one hold`,
		`^All 7 chapters went as told`,
	} {
		p.expect(line)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	nothingIn(t, temp)
}

// nothingIn wants a program to have cleared up.
func nothingIn(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// What goes otherwise is said, and is an exit status.
func TestQuickstartGoesOtherwise(t *testing.T) {
	t.Parallel()
	p := start(t, "quickstart", []string{"TMPDIR=/nowhere"}, "quickstart")
	if status := p.wait(); status != 1 || !strings.Contains(strings.Join(p.text(), " "), "quickstart: it went otherwise: ") {
		t.Errorf("exit status %d, %q", status, p.text())
	}
}
