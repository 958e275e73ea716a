//go:build unix

package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"
)

// fetch is a GET with a Host header.
func fetch(t *testing.T, addr, path, host, password string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t), http.MethodGet, "http://"+addr+path, nil)
	must0(t, err)
	if r.Host = host; password != "" {
		r.SetBasicAuth("operator", password)
	}
	answer, err := http.DefaultClient.Do(r)
	must0(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must0(t, err)
	return answer.StatusCode, string(text)
}

// status --http shows what status shows of the member that it connects to. Without a password the agent answers loopback clients alone.
func TestStatus_AskedOverHTTP(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "agent", "--dir", dir, "--name", "anna", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
	addr, web := agentAddrs(t, p.line("msg=listening"))
	p.line("msg=open")
	log := regexp.MustCompile(`(?m)^log:.*$|"(commit|applied)": \d+`) // a connection of a client is an entry
	for _, args := range [][]string{{"status"}, {"status", "-o", "json"}, {"members"}, {"members", "-o", "json"}} {
		var out, errs bytes.Buffer
		if code := run(append(args, "--addr", addr), nil, &out, &errs); code != 0 {
			t.Fatal(errs.String())
		}
		asked := asOperator(t, "", web, args...)
		if want, got := log.ReplaceAllString(out.String(), ""), log.ReplaceAllString(asked.out, ""); asked.code != 0 || got != want {
			t.Errorf("%v: exit code %d with --http\n%s%s\nwant\n%s", args, asked.code, got, asked.err, want)
		}
	}
	if status, text := fetch(t, web, statusPath, "rebound.example", ""); status != http.StatusForbidden {
		t.Errorf("asked by the name of a site: %d %s", status, text)
	}
	must0(t, p.cmd.Process.Kill())
	p.wait()

	t.Setenv(passwordVariable, testPassword)
	p = start(t, "agent", "--dir", dir, "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
	_, web = agentAddrs(t, p.line("msg=listening"))
	p.line("msg=open")
	for password, want := range map[string]int{"": 401, "wrong": 401, testPassword: 200} {
		if status, text := fetch(t, web, statusPath, "proxy.example", password); status != want {
			t.Errorf("password %q: %d, want %d: %s", password, status, want, text)
		}
	}
	want(t, asOperator(t, "another horse", web, "status"), exitFailed, "log in")
}

// An agent that is asked again and again, as by status --watch, has no connection left of the answers before.
func TestAgentHTTP_ClosesConnections(t *testing.T) {
	closed := make(chan struct{}, 10)
	agent := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	agent.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			closed <- struct{}{}
		}
	}
	agent.Start()
	defer agent.Close()
	a := agentHTTP{addr: agent.Listener.Addr().String()}
	for range cap(closed) {
		status, text, err := a.ask(within(t), http.MethodGet, "/", nil)
		if err != nil || status != http.StatusOK || text != "ok" {
			t.Fatal(status, text, err)
		}
	}
	late := time.After(patience)
	for range cap(closed) {
		select {
		case <-closed:
		case <-late:
			t.Fatal("a connection is left open")
		}
	}
}
