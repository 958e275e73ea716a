package conclavehttp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// operator authorizes requests with its token.
func operator(r *http.Request, act conclavehttp.Act) (string, error) {
	if act.Kind == conclavehttp.ActView || r.Header.Get("Authorization") == "Bearer operator" {
		return "olga", nil
	}
	return "", errors.New("not an operator")
}

func form(act, target string) string {
	return url.Values{"act": {act}, "target": {target}}.Encode()
}

func asOperator(r *http.Request) { r.Header.Set("Authorization", "Bearer operator") }

func TestConsole_ClosesSession(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	var audit auditLog
	site := serve(t, n, &conclavehttp.ConsoleOptions{Authorize: operator, Audit: audit.logger()})
	s := grouptest.MustSession(t, n, &conclave.SessionConfig{Name: "importer"})
	grouptest.MustLock(t, s.FencedLock("x"))
	closing := form("close-session", s.ID().String())
	command := "<code>conclave release --session " + s.ID().String() + " --force</code>"
	want(t, site.page("show", "sessions"), `value="close-session"`, command)
	want(t, site.page("lock", "x"), command)

	w, body := site.send("POST", "act", closing)
	if w.StatusCode != http.StatusForbidden {
		t.Errorf("without authorization: %s", w.Status)
	}
	want(t, body, "refused", "not an operator")
	if s.Err() != nil {
		t.Fatal("the session has ended")
	}
	w, body = site.send("POST", "act", closing, asOperator)
	if w.StatusCode != http.StatusOK {
		t.Errorf("with authorization: %s", w.Status)
	}
	want(t, body, "done")
	<-s.Done()
	if w, _ = site.send("POST", "act", closing, asOperator); w.StatusCode != http.StatusConflict {
		t.Errorf("twice: %s", w.Status)
	}
	id := s.ID().String()
	wantLines(t, audit.String(),
		`act=close-session target=`+id+` actor="" result=refused error="not an operator"`,
		`act=close-session target=`+id+` actor=olga result=allowed`,
		`act=close-session target=`+id+` actor=olga result=done`,
		`act=close-session target=`+id+` actor=olga result=allowed`,
		`act=close-session target=`+id+` actor=olga result=failed error="`+conclave.ErrSessionNotFound.Error())
	html := site.events("").await("timeline", "closed by force")
	want(t, html, "importer", "held 1", "this node lost")
}

// wantLines checks the records of the audit log.
func wantLines(t *testing.T, log string, parts ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if len(lines) != len(parts) {
		t.Fatalf("%d records, want %d:\n%s", len(lines), len(parts), log)
	}
	for i, line := range lines {
		line = strings.ReplaceAll(line, "conclave: close session "+"", "")
		key, value, _ := strings.Cut(parts[i], ` error="`)
		if !strings.HasPrefix(line, `level=INFO msg="console act" `+key) || !strings.Contains(line, value) {
			t.Errorf("record %d is\n%s; want\n%s", i, line, parts[i])
		}
	}
}

func TestConsole_TransfersLeadershipAndRemoves(t *testing.T) {
	t.Parallel()
	g := grouptest.Start(t, 3)
	leader := g.Leader()
	next := (leader + 1) % 3
	n := g.Nodes[next] // any member can be asked
	var audit auditLog
	site := serve(t, n, &conclavehttp.ConsoleOptions{Authorize: operator, Audit: audit.logger()})
	want(t, site.page(), `value="transfer-leadership"`, `value="remove-member"`,
		"<code>conclave transfer "+g.ID(next).String()+"</code>", "<code>conclave remove "+g.ID(leader).String())
	transfers := 0
	for done := false; !done; { // a busy leader gives a transfer up, and another member may be elected instead
		w, body := site.send("POST", "act", form("transfer-leadership", g.ID(next).String()), asOperator)
		switch w.StatusCode {
		case http.StatusOK:
			transfers++
			done = g.Leader() == next
		case http.StatusConflict:
		default:
			t.Fatalf("%s: %s", w.Status, body)
		}
	}
	if w, body := site.send("POST", "act", form("remove-member", g.ID(leader).String()), asOperator); w.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", w.Status, body)
	}
	<-g.Nodes[leader].Done()
	grouptest.WantError(t, g.Nodes[leader].Err(), conclave.ErrRemoved)
	if w, _ := site.send("POST", "act", form("remove-member", g.ID(next).String()), asOperator); w.StatusCode != http.StatusConflict {
		t.Errorf("the node's own member: %s", w.Status)
	}
	if n := strings.Count(audit.String(), "result=done name=member-"); n != transfers+1 {
		t.Errorf("%d acts done, want %d:\n%s", n, transfers+1, audit.String())
	}
	site.events("").await("timeline", "was removed")
}

// No page of another site makes a browser act with its user's credentials.
func TestConsole_RefusesCrossSiteActs(t *testing.T) {
	n := grouptest.Alone(t)
	var audit auditLog
	site := serve(t, n, &conclavehttp.ConsoleOptions{Authorize: operator, Audit: audit.logger()})
	s := grouptest.MustSession(t, n, nil)
	closing := form("close-session", s.ID().String())
	for name, edit := range map[string]func(*http.Request){
		"cross-site":     header("Sec-Fetch-Site", "cross-site"),
		"same-site":      header("Sec-Fetch-Site", "same-site"),
		"another origin": header("Origin", "https://elsewhere.example"),
		"no origin":      header("Origin", "null"),
	} {
		w, body := site.send("POST", "act", closing, asOperator, edit)
		if w.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s: %s", name, w.Status, body)
		}
	}
	if s.Err() != nil {
		t.Error("the session has ended")
	}
	if n := strings.Count(audit.String(), "page of another site"); n != 4 {
		t.Errorf("%d refusals are recorded:\n%s", n, audit.String())
	}
	if w, _ := site.send("POST", "act", closing, asOperator, header("Sec-Fetch-Site", "same-origin")); w.StatusCode != http.StatusOK {
		t.Errorf("the same origin: %s", w.Status)
	}
}

// Acts need an authorization and an audit log.
func TestConsole_ReadOnly(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	var audit auditLog
	s := grouptest.MustSession(t, n, nil)
	for name, opts := range map[string]*conclavehttp.ConsoleOptions{
		"no options": nil, "no audit log": {Authorize: operator}, "no authorization": {Audit: audit.logger()},
	} {
		site := serve(t, n, opts)
		wantNot(t, site.page("show", "sessions"), "<form method=\"post\"")
		w, body := site.send("POST", "act", form("close-session", s.ID().String()), asOperator)
		if w.StatusCode != http.StatusForbidden || !strings.Contains(body, "read-only") {
			t.Errorf("%s: %s: %s", name, w.Status, body)
		}
	}
	if s.Err() != nil {
		t.Error("the session has ended")
	}
	want(t, audit.String(), "result=refused")
}

func TestConsole_MalformedActs(t *testing.T) {
	t.Parallel()
	var audit auditLog
	site := serve(t, grouptest.Alone(t), &conclavehttp.ConsoleOptions{Authorize: operator, Audit: audit.logger()})
	malformed := []string{
		form("", ""), form("format-disk", "x"), form("close-session", "x"), form("transfer-leadership", "-1"), form("remove-member", ""),
		form("close-session", strings.Repeat("x", 5000)), "%zz", "act=close-session;target=1",
	}
	for _, f := range malformed {
		if w, body := site.send("POST", "act", f, asOperator); w.StatusCode != http.StatusBadRequest {
			t.Errorf("%.40s: %s: %s", f, w.Status, body)
		}
	}
	if n := strings.Count(audit.String(), "result=refused"); n != len(malformed) {
		t.Errorf("%d of %d refusals are recorded:\n%s", n, len(malformed), audit.String())
	}
}

// An audit log that drops the records is none.
func TestConsole_AuditLogBelowLevel(t *testing.T) {
	n := grouptest.Alone(t)
	s := grouptest.MustSession(t, n, nil)
	quiet := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn}))
	site := serve(t, n, &conclavehttp.ConsoleOptions{Authorize: operator, Audit: quiet})
	wantNot(t, site.page("show", "sessions"), "<form method=\"post\"")
	w, _ := site.send("POST", "act", form("close-session", s.ID().String()), asOperator)
	if w.StatusCode != http.StatusForbidden || s.Err() != nil {
		t.Errorf("%s, the session: %v", w.Status, s.Err())
	}
}

// A host whose acts are refused again and again does not fill the audit log, and what it does keeps no operator of
// the same host from acting.
func TestConsole_RefusedActsLimited(t *testing.T) {
	n := grouptest.Alone(t)
	var audit auditLog
	site := serve(t, n, &conclavehttp.ConsoleOptions{Authorize: operator, Audit: audit.logger()})
	s := grouptest.MustSession(t, n, nil)
	closing := form("close-session", s.ID().String())
	limited := 0
	for i := range 30 {
		w, body := site.send("POST", "act", closing)
		switch {
		case w.StatusCode == http.StatusTooManyRequests && w.Header.Get("Retry-After") != "" && strings.Contains(body, "try again in"):
			limited++
		case w.StatusCode != http.StatusForbidden || i < 10 && limited > 0:
			t.Fatalf("%d: %s: %s", i, w.Status, body)
		}
	}
	if limited == 0 {
		t.Error("30 refusals are not limited")
	}
	if n := strings.Count(audit.String(), "result=refused"); n >= 30 || !strings.Contains(audit.String(), "too many acts") {
		t.Errorf("%d records of 30, %d of them limited:\n%s", n, limited, audit.String())
	}
	if w, body := site.send("POST", "act", closing, asOperator); w.StatusCode != http.StatusOK {
		t.Errorf("the operator: %s: %s", w.Status, body)
	}
}

// An act of a client that the console does not serve is recorded.
func TestConsole_RecordsActsFromElsewhere(t *testing.T) {
	var audit auditLog
	site := serve(t, grouptest.Alone(t), &conclavehttp.ConsoleOptions{Audit: audit.logger()})
	w, _ := site.send("POST", "act", form("close-session", "1"), host("rebound.example"))
	if w.StatusCode != http.StatusForbidden {
		t.Error(w.Status)
	}
	wantLines(t, audit.String(), `act=unknown target="" actor="" result=refused error="this console serves loopback clients only`)
}

// blockedLog takes no record before it is freed.
type blockedLog struct {
	slog.Handler
	free chan struct{}
}

func (b blockedLog) Handle(context.Context, slog.Record) error { <-b.free; return nil }

// While the audit log blocks, as many acts and refused ones wait for it as Audit says. Others have their answers.
func TestConsole_AuditBlocks(t *testing.T) {
	const waiting, more = 2 * 16, 8
	audit := blockedLog{slog.NewTextHandler(io.Discard, nil), make(chan struct{})}
	site := serve(t, grouptest.Alone(t), &conclavehttp.ConsoleOptions{Authorize: operator, Audit: slog.New(audit)})
	answers := make(chan int, waiting+more)
	for range cap(answers) {
		go func() {
			w, _ := site.send("POST", "act", form("close-session", "00000000-0000-0000-0000-000000000001"), asOperator)
			answers <- w.StatusCode
		}()
	}
	for range more {
		if status := <-answers; status != http.StatusServiceUnavailable {
			t.Errorf("%d before the record", status)
		}
	}
	close(audit.free)
	statuses := make(map[int]int)
	for range waiting {
		statuses[<-answers]++
	}
	if statuses[http.StatusConflict] != waiting/2 || statuses[http.StatusServiceUnavailable] != waiting/2 {
		t.Errorf("answers: %v", statuses)
	}
}
