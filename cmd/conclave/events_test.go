//go:build unix

package main

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/testport"
)

// events shows what an agent has noticed, each event once, to those that may see its console.
func TestEvents(t *testing.T) {
	d := newDeployment(t)
	first := d.start("anna")
	d.opened(first)
	d.opened(d.start("ben", "--memory"))
	d.await(first, "ben", func(s statusView) bool { return s.count("standby") == 1 })
	d.holder(first).fence()
	d.ask(first, "release", "invoices", "--force")
	asked := []string{"--http", first.web, "--console-password-file", d.password}
	out := d.operate(append([]string{"events"}, asked...)...)
	for _, want := range []string{"  anna leads, term ", "  ben joined as a standby\n", " was closed by force, held 1\n"} {
		if strings.Count(out, want) != 1 {
			t.Errorf("%s\nwant %q once", out, want)
		}
	}
	var seqs []uint64
	kinds := make(map[string]noticedView)
	for line := range strings.Lines(d.operate(append([]string{"events", "-o", "json"}, asked...)...)) {
		e := decoded[noticedView](t, line)
		seqs, kinds[e.Kind] = append(seqs, e.Seq), e
	}
	if !slices.IsSorted(seqs) || len(seqs) < 3 {
		t.Error(seqs)
	}
	leads, forced := kinds["leader"], kinds["session forced"]
	if leads.Member == nil || *leads.Member != first.id || leads.MemberName != "anna" || leads.Term == 0 || leads.Redundancy != nil || time.Since(leads.Time) > time.Hour {
		t.Errorf("%+v", leads)
	}
	if forced.Session == nil || forced.Held != 1 || forced.Count != 1 || !strings.Contains(forced.Name, "process") {
		t.Errorf("%+v", forced)
	}
	if status, text := fetch(t, first.web, eventsPath, first.web, ""); status != http.StatusUnauthorized {
		t.Errorf("without the password: %d %s", status, text)
	}
}

// --follow prints each event once, and goes on when the agent has started again.
func TestEvents_Follow(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	web := testport.Addr(t)
	args := []string{"agent", "--name", "anna", "--dir", d.dir + "/anna", "--bind", "127.0.0.1:0", "--http", web}
	agent := start(t, args...)
	addr, _ := agentAddrs(t, agent.line("msg=listening"))
	agent.line("msg=open")
	p := start(t, "events", "-o", "json", "--follow", "--interval", "20ms", "--http", web)
	noticed := func(kind string) noticedView {
		t.Helper()
		return decoded[noticedView](t, p.line(`"kind":"`+kind+`"`))
	}
	began := noticed("leader")
	for range 2 {
		lock := start(t, "lock", "invoices", "--ttl", "1h", "--addr", addr)
		lock.fence()
		d.operate("release", "invoices", "--force", "--addr", addr)
		if e := noticed("session forced"); e.Held != e.Count || e.Seq <= began.Seq {
			t.Errorf("%+v after %+v", e, began)
		}
	}
	agent.kill()
	p.line("is an agent running")
	start(t, args...).line("msg=open")
	p.line("the agent has started again")
	if e := noticed("leader"); e.Seq > began.Seq || !e.Time.After(began.Time) {
		t.Errorf("%+v after %+v", e, began)
	}
	must0(t, p.cmd.Process.Signal(syscall.SIGINT))
	if code := p.wait(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	seqs := make(map[uint64]int)
	before, _, _ := strings.Cut(p.printed(), "is an agent running")
	for line := range strings.Lines(before) {
		if strings.HasPrefix(line, "{") {
			seqs[decoded[noticedView](t, line).Seq]++
		}
	}
	for seq, n := range seqs {
		if n != 1 {
			t.Errorf("event %d is printed %d times", seq, n)
		}
	}
}

// An agent that has never answered is one that --follow does not wait for.
func TestEvents_NoAgent(t *testing.T) {
	for _, args := range [][]string{{"events"}, {"events", "--follow"}} {
		want(t, asOperator(t, "", "127.0.0.1:9", args...), exitUnavailable, "is an agent running")
	}
}

// What the history may yet count further events for is held back, with all after it.
func TestEvents_Settled(t *testing.T) {
	now := time.Now()
	event := func(seq uint64, kind conclave.HistoryKind, ago time.Duration) conclave.HistoryEvent {
		return conclave.HistoryEvent{Seq: seq, Kind: kind, Time: now.Add(-ago)}
	}
	history := []conclave.HistoryEvent{
		event(1, conclave.HistorySessionForced, 2*counting), event(2, conclave.HistoryLeader, 0), event(3, conclave.HistorySessionExpired, counting),
		event(4, conclave.HistoryLeader, 0),
	}
	if got := settled(history, now); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if got := settled(history, now.Add(time.Nanosecond)); len(got) != 4 {
		t.Errorf("%+v", got)
	}
}

// Each kind of event has a text of its own, and no name controls the terminal.
func TestEvents_Text(t *testing.T) {
	names := eventNames{7: "anna"}
	names.note(conclave.HistoryEvent{Member: 9, MemberName: "clara"})
	text := func(e conclave.HistoryEvent) string { return names.event(e).text() }
	seen := make(map[string]bool)
	for kind := conclave.HistoryLeader; kind <= conclave.HistoryHoldLost; kind++ {
		got := text(conclave.HistoryEvent{Kind: kind, Member: 9, By: 7, Count: 1, Name: "a\x1b[2Jb"})
		if seen[got] || strings.Contains(got, "\x1b") || strings.Contains(got, kind.String()+":") {
			t.Errorf("%v: %q", kind, got)
		}
		seen[got] = true
	}
	for want, e := range map[string]conclave.HistoryEvent{
		"no leader is known, term 4":                              {Kind: conclave.HistoryLeader, Term: 4},
		"anna votes in place of clara":                            {Kind: conclave.HistoryMemberReplaced, Member: 9, By: 7},
		"the quorum is lost":                                      {Kind: conclave.HistoryRedundancy, Voters: -1},
		"2 more voters may fail":                                  {Kind: conclave.HistoryRedundancy, Voters: 2},
		"3 sessions of anna: each expired, together they held 12": {Kind: conclave.HistorySessionExpired, Member: 7, Count: 3, Held: 12},
		"session job of 0000000000000008 expired, held 1":         {Kind: conclave.HistorySessionExpired, Member: 8, Count: 1, Held: 1, Name: "job"},
		"this member lost job and 2 more, with fence 5":           {Kind: conclave.HistoryHoldLost, Member: 7, Count: 3, Name: "job", Fence: 5},
		"HistoryKind(99): anna":                                   {Kind: 99, Member: 7},
	} {
		if got := text(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
