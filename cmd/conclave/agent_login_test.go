//go:build unix

package main

import (
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
)

// A wrong password is in the log. A person who mistypes may go on, a guesser has to wait, and neither a page of another site
// nor another client of the same host keeps a browser out that has had the password.
func TestAgent_WrongPasswords(t *testing.T) {
	t.Setenv(passwordVariable, testPassword)
	p := start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
	_, web := agentAddrs(t, p.line("msg=listening"))
	p.line("msg=open")
	jar, err := cookiejar.New(nil)
	must0(t, err)
	browser, other := &http.Client{Jar: jar}, &http.Client{}
	send := func(c *http.Client, method, path, password, site string) *http.Response {
		t.Helper()
		return login(t, c, method, "http://"+web+path, password, "Sec-Fetch-Site", site)
	}
	wantStatus := func(what string, answer *http.Response, status int) {
		t.Helper()
		if answer.StatusCode != status {
			t.Fatalf("%s: %s, want %d", what, answer.Status, status)
		}
	}
	for range 3 {
		wantStatus("mistyped", send(browser, "GET", "/console/", "wrong", "none"), http.StatusUnauthorized)
	}
	if line := p.line("wrong password"); !strings.Contains(line, "actor=olga") || !strings.Contains(line, "remote=127.0.0.1:") {
		t.Error(line)
	}
	wantStatus("without a password", send(other, "POST", "/console/act", "", ""), http.StatusUnauthorized)
	p.line("console act without a password")
	for range 20 {
		send(other, "GET", "/console/", "wrong", "cross-site")
		send(other, "GET", "/console/", "", "")
	}
	wantStatus("with the password", send(browser, "GET", "/console/", testPassword, "none"), http.StatusOK)

	var last *http.Response
	for range 20 {
		last = send(other, "GET", "/status", "wrong", "")
	}
	wantStatus("guessed", last, http.StatusTooManyRequests)
	if last.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	p.line("too many wrong passwords")
	wantStatus("guessed right while limited", send(other, "POST", leavePath, testPassword, ""), http.StatusTooManyRequests)
	wantStatus("the browser", send(browser, "GET", "/console/", testPassword, "same-origin"), http.StatusOK)
	_, port, err := net.SplitHostPort(web)
	must0(t, err)
	answer := login(t, other, "GET", "http://"+web+"/console/", testPassword, "Cookie", "conclave-console-"+port+"=x."+strings.Repeat("0", 64))
	wantStatus("with a forged mark", answer, http.StatusTooManyRequests)
}

// A browser that has had the password of two agents on one host has the marks of both.
func TestAgent_LoginsOfOneBrowser(t *testing.T) {
	t.Setenv(passwordVariable, testPassword)
	jar, err := cookiejar.New(nil)
	must0(t, err)
	browser, other := &http.Client{Jar: jar}, &http.Client{}
	status := func(c *http.Client, web, password string) int {
		return login(t, c, "GET", "http://"+web+"/console/", password, "", "").StatusCode
	}
	var agents []string
	for range 2 {
		p := start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
		_, web := agentAddrs(t, p.line("msg=listening"))
		p.line("msg=open")
		if got := status(browser, web, testPassword); got != http.StatusOK {
			t.Fatal(got)
		}
		agents = append(agents, web)
	}
	for _, web := range agents {
		for range 20 {
			status(other, web, "wrong")
		}
		if got := status(other, web, testPassword); got != http.StatusTooManyRequests {
			t.Fatal("the host is not limited:", got)
		}
		if got := status(browser, web, testPassword); got != http.StatusOK {
			t.Errorf("the browser at %s: %d", web, got)
		}
	}
}

// login sends a request with a password and a header.
func login(t *testing.T, c *http.Client, method, url, password, header, value string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t), method, url, nil)
	must0(t, err)
	if password != "" {
		r.SetBasicAuth("olga", password)
	}
	if value != "" {
		r.Header.Set(header, value)
	}
	answer, err := c.Do(r)
	must0(t, err)
	_, err = io.Copy(io.Discard, answer.Body)
	must0(t, err)
	answer.Body.Close()
	return answer
}
