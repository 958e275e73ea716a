//go:build unix

package main

import (
	"bytes"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

const testPassword = "correct horse"

// asOperator runs a command for an agent's --http address, with the password or without.
func asOperator(t *testing.T, password, web string, args ...string) result {
	t.Helper()
	t.Setenv(passwordVariable, password)
	var out, errs bytes.Buffer
	code := run(append(args, "--http", web, "--timeout", "10s"), nil, &out, &errs)
	return result{out.String(), errs.String(), code}
}

// A running member leaves when an operator asks for it, who needs the password on the same machine too.
func TestLeave(t *testing.T) {
	t.Setenv(passwordVariable, testPassword)
	first := start(t, "agent", "--memory", "--name", "anna", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
	addr, web := agentAddrs(t, first.line("msg=listening"))
	first.line("msg=open")
	want(t, asOperator(t, testPassword, web, "leave"), exitRefused, "last voter")
	second := start(t, "agent", "--dir", t.TempDir(), "--name", "ben", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--join", addr)
	_, secondWeb := agentAddrs(t, second.line("msg=listening"))
	second.line("msg=open")

	want(t, asOperator(t, "", secondWeb, "leave"), exitUsage, "missing the password")
	want(t, asOperator(t, "another horse", secondWeb, "leave"), exitFailed, "this needs the password")
	want(t, asOperator(t, testPassword, secondWeb, "leave"), 0, "")
	second.line(`msg="left the group"`)
	second.line("msg=closed")
	if code := second.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	first.line(`msg="member removed"`)
	want(t, asOperator(t, testPassword, secondWeb, "leave"), exitUnavailable, "is an agent running")
	want(t, asOperator(t, "", web, "health"), 0, "")
}

// While the others have no quorum, leave has no effect.
func TestLeave_OthersWithoutQuorum(t *testing.T) {
	t.Setenv(passwordVariable, testPassword)
	d := newDeployment(t)
	all := d.found("--memory")
	d.healthy(all[0], 3, 0)
	all[1].kill()
	all[2].kill()
	want(t, asOperator(t, testPassword, all[0].web, "leave"), exitUnavailable, "quorum")
	all[0].line(`msg="not left the group"`)
	want(t, asOperator(t, testPassword, all[0].web, "status"), 0, "")
}

// The outcome is unknown if the group loses its quorum while the member leaves. The agent has ended then, but not as one that has
// left: a supervisor starts it again.
func TestLeave_OutcomeUnknown(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	first, second := d.start("anna", "--expect", "2"), d.start("ben", "--expect", "2")
	d.opened(first)
	d.opened(second)
	d.healthy(first, 2, 0)
	must0(t, second.cmd.Process.Signal(syscall.SIGSTOP))
	var out, errs bytes.Buffer
	code := run([]string{"leave", "--http", first.web, "--console-password-file", d.password}, nil, &out, &errs)
	want(t, result{out.String(), errs.String(), code}, exitUnknown, "unknown")
	first.line(`msg="not left the group"`)
	first.line("conclave: the member may still belong to the group")
	if code := first.wait(); code != exitUnknown {
		t.Errorf("the agent: exit code %d, want %d", code, exitUnknown)
	}
}

// An agent without a password refuses every caller, and a page of another site has the browser's password and no leave.
func TestLeave_Refused(t *testing.T) {
	for _, c := range []struct{ password, origin, contains string }{
		{"", "", "has no password"},
		{testPassword, "http://other.example", "cross-origin"},
	} {
		t.Setenv(passwordVariable, c.password)
		p := start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
		_, web := agentAddrs(t, p.line("msg=listening"))
		p.line("msg=open")
		r, err := http.NewRequestWithContext(within(t), http.MethodPost, "http://"+web+leavePath, nil)
		must0(t, err)
		r.SetBasicAuth("operator", c.password)
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		answer, err := http.DefaultClient.Do(r)
		must0(t, err)
		var text bytes.Buffer
		_, err = text.ReadFrom(answer.Body)
		must0(t, err)
		answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden || !strings.Contains(text.String(), c.contains) {
			t.Errorf("password %q, origin %q: %d %s", c.password, c.origin, answer.StatusCode, text.String())
		}
		want(t, asOperator(t, "", web, "health"), 0, "")
	}
}

// While the founders have not found each other there is no group to leave.
func TestLeave_WaitingForFounders(t *testing.T) {
	t.Setenv(passwordVariable, testPassword)
	p := start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--join", "127.0.0.1:9", "--expect", "2")
	_, web := agentAddrs(t, p.line("msg=listening"))
	for _, command := range []string{"leave", "status", "members"} {
		want(t, asOperator(t, testPassword, web, command), exitUnavailable, "waits for its group")
	}
}
