package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
)

// An exit code has one meaning: what is worth a retry and had no effect is not what is complete, has
// broken off or is unknown.
func TestExit_OneMeaning(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{conclave.ErrUnavailable, exitUnavailable}, {conclave.ErrBusy, exitUnavailable},
		{conclave.ErrUnknown, exitUnknown}, {fmt.Errorf("%w: %w", conclave.ErrUnknown, conclave.ErrClosed), exitUnknown},
		{conclave.ErrIncomplete, exitIncomplete}, {fmt.Errorf("%w: %w", conclave.ErrIncomplete, conclave.ErrClosed), exitIncomplete},
		{backupCode(conclave.ErrUnavailable), exitUnconfirmed}, {backupCode(conclave.ErrIncomplete), exitIncomplete},
		{backupCode(conclave.ErrBusy), exitUnavailable}, {backupCode(nil), 0},
		{conclave.ErrInvalid, exitUsage}, {conclave.ErrRemoved, exitRemoved},
		{conclave.ErrKeyNotFound, exitRefused}, {conclave.ErrSessionNotFound, exitRefused}, {conclave.ErrLocked, exitRefused},
		{conclave.ErrLockDelay, exitRefused}, {conclave.ErrNoLeader, exitRefused}, {conclave.ErrCompareFailed, exitRefused},
		{conclave.ErrLastVoter, exitRefused},
		{conclave.ErrClosed, exitFailed}, {conclave.ErrCorrupt, exitFailed}, {conclave.ErrTooLarge, exitFailed},
		{conclave.ErrUpgradeRequired, exitFailed}, {conclave.ErrCompacted, exitFailed},
	} {
		p := &program{stderr: new(discard)}
		if code := p.exit(new(program).root(), c.err); code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, code, c.code)
		}
	}
}

// The command, its page, the table of exit codes and the procedure state the exit codes of a backup in the same words.
func TestExit_OneTextOfBackups(t *testing.T) {
	for file, times := range map[string]int{"../../docs/CLI.md": 2, "../../docs/OPERATIONS.md": 1} {
		text, err := os.ReadFile(file)
		must0(t, err)
		if n := strings.Count(string(text), backupCodes); n != times {
			t.Errorf("%s has the text %d times, want %d: %s", file, n, times, backupCodes)
		}
	}
	if text := new(program).backupCommand().Long; !strings.Contains(text, backupCodes) {
		t.Error(text)
	}
}

type discard struct{}

func (*discard) Write(b []byte) (int, error) { return len(b), nil }

// docs/CLI.md has one row for each exit code.
func TestExit_Documented(t *testing.T) {
	text, err := os.ReadFile("../../docs/CLI.md")
	must0(t, err)
	rows := make(map[string]int)
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(text), -1) {
		rows[row[1]]++
	}
	for _, code := range []int{
		0, exitFailed, exitUsage, exitRemoved, exitRefused, exitUnavailable, exitUnknown, exitUnconfirmed, exitIncomplete,
		exitJobDone, exitLost, exitNotAcquired, exitItself, exitCannotRun, exitNoCommand,
	} {
		if n := rows[strconv.Itoa(code)]; n != 1 {
			t.Errorf("exit code %d has %d rows", code, n)
		}
		delete(rows, strconv.Itoa(code))
	}
	if len(rows) > 0 {
		t.Errorf("rows without a code: %v", rows)
	}
}
