package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

// The exit codes, which docs/CLI.md lists. Those of lock, elect and job leave room for the codes of the
// commands that they run, as timeout(1) and env(1) do.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitRemoved     = 3
	exitRefused     = 4
	exitUnavailable = 5
	exitUnknown     = 6
	exitUnconfirmed = 7
	exitIncomplete  = 8

	exitJobDone     = 122
	exitLost        = 123
	exitNotAcquired = 124
	exitItself      = 125
	exitCannotRun   = 126
	exitNoCommand   = 127
)

// codeError is an error with an exit code of its own.
type codeError struct {
	error
	code int
}

func (e codeError) Unwrap() error { return e.error }

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return codeError{err, code}
}

// exit reports a command's error and returns the exit code.
func (p *program) exit(cmd *cobra.Command, err error) int {
	if err == nil {
		return p.code
	}
	text := inFlags(err.Error())
	if !strings.HasPrefix(text, "conclave: ") {
		text = "conclave: " + text
	}
	if advice := advise(cmd, err); advice != "" {
		text += "\n" + advice
	}
	p.tell(printable(text))
	var coded codeError
	if errors.As(err, &coded) {
		return coded.code
	}
	if cmd.Annotations[runsChild] != "" && !errors.As(err, new(interrupted)) {
		return exitItself
	}
	return codeOf(err)
}

// printable escapes what a terminal would obey: an error can have the text of another process, or a path. Lines remain.
func printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

func codeOf(err error) int {
	var usage usageError
	var signal interrupted
	switch {
	case errors.As(err, &signal):
		return 128 + int(signal.signal)
	case errors.As(err, &usage), isUsage(err), errors.Is(err, conclave.ErrInvalid):
		return exitUsage
	case errors.Is(err, conclave.ErrRemoved):
		return exitRemoved
	case errors.Is(err, conclave.ErrIncomplete):
		return exitIncomplete
	case errors.Is(err, conclave.ErrUnknown):
		return exitUnknown
	case errors.Is(err, conclave.ErrUnavailable), errors.Is(err, conclave.ErrBusy):
		return exitUnavailable
	case errors.Is(err, conclave.ErrKeyNotFound), errors.Is(err, conclave.ErrSessionNotFound), errors.Is(err, conclave.ErrLocked),
		errors.Is(err, conclave.ErrLockDelay), errors.Is(err, conclave.ErrNoLeader), errors.Is(err, conclave.ErrCompareFailed),
		errors.Is(err, conclave.ErrLastVoter), errors.Is(err, conclave.ErrGroupNotFound):
		return exitRefused
	}
	return exitFailed
}

// isUsage recognizes the errors that cobra makes of a command line.
func isUsage(err error) bool {
	for _, beginning := range []string{"unknown command", "unknown flag", "unknown shorthand", "flag needs an argument", "invalid argument", "if any flags", "required flag"} {
		if strings.HasPrefix(err.Error(), beginning) {
			return true
		}
	}
	return false
}

// advise says what to do about an error, where its text does not.
func advise(cmd *cobra.Command, err error) string {
	switch code := codeOf(err); {
	case errors.Is(err, exec.ErrNotFound), errors.As(err, new(codeError)):
		return ""
	case code == exitUsage && !errors.Is(err, conclave.ErrInvalid):
		return fmt.Sprintf("Run %q for its arguments and flags.", cmd.CommandPath()+" --help")
	case errors.Is(err, conclave.ErrUnavailable):
		return "conclave status shows what the members know by themselves."
	case errors.Is(err, conclave.ErrGroupNotFound):
		return "conclave groups lists the groups, and conclave groups NAME --create creates one."
	case code == exitUnknown:
		return "The call may have taken effect: look before you repeat it."
	}
	return ""
}
