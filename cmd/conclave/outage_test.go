//go:build unix

package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// signalAgents sends a signal to agents.
func signalAgents(t *testing.T, s syscall.Signal, agents ...*operated) {
	t.Helper()
	for _, m := range agents {
		must0(t, m.cmd.Process.Signal(s))
	}
}

// waiters blocks until so many requests wait for a lock.
func (d *deployment) waiters(m *operated, lock string, n int) {
	d.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		text, ok := d.poll("explain", lock, "-o", "json", "--addr", m.addr)
		if ok && decoded[explanationView](d.t, text).Waiters == n {
			return
		}
		<-time.After(50 * time.Millisecond) // the command does not wait
	}
	d.t.Fatalf("lock %q does not have %d waiters", lock, n)
}

// What waits for a lock, and what leads, survives an outage that is longer than its TTL with --timeout: it is granted the
// lock, or leads again, once the group has a quorum.
func TestLock_OutageOfGroup(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	addrs := all[0].addr + "," + all[1].addr + "," + all[2].addr
	first := d.holder(all[:]...)
	before := first.fence()
	waiter := start(t, "lock", "invoices", "--ttl", "10s", "--timeout", "10s", "--addr", addrs)
	d.waiters(all[0], "invoices", 1)
	leader := start(t, "elect", "boss", "--ttl", "10s", "--timeout", "10s", "--grace", "0s", "--addr", addrs, "--", "sh", "-c", "echo leading; exec sleep 600")
	leader.line("leading")
	limited := start(t, "lock", "invoices", "--ttl", "10s", "--timeout", "10s", "--wait", "40s", "--addr", addrs, "--", "true")
	d.waiters(all[0], "invoices", 2)

	signalAgents(t, syscall.SIGSTOP, all[1], all[2])
	t.Cleanup(func() { signalAgents(t, syscall.SIGCONT, all[1], all[2]) })
	waiter.line("trying again until the group answers")
	leader.line("campaigning again")
	leader.line("trying again until the group answers")
	if code := limited.wait(); code != exitNotAcquired {
		t.Errorf("--wait has passed: exit code %d, want %d\n%s", code, exitNotAcquired, limited.printed())
	}
	signalAgents(t, syscall.SIGCONT, all[1], all[2])
	d.healthy(all[0], 3, 0) // the release below is bounded, and the holder's TTL is an hour

	must0(t, first.cmd.Process.Signal(syscall.SIGTERM))
	first.wait()
	if after := waiter.fence(); after <= before {
		t.Errorf("fence %v after %v", after, before)
	}
	leader.line("leading")
	must0(t, waiter.cmd.Process.Signal(syscall.SIGTERM))
	if code := waiter.wait(); code != 0 {
		t.Errorf("the waiter: exit code %d\n%s", code, waiter.printed())
	}
	must0(t, leader.cmd.Process.Signal(syscall.SIGTERM))
	if code := leader.wait(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("elect: exit code %d\n%s", code, leader.printed())
	}
}

// A signal ends the wait for a group without a quorum.
func TestLock_SignalInOutage(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	first := d.holder(all[:]...)
	first.fence()
	waiter := start(t, "lock", "invoices", "--ttl", "10s", "--timeout", "10s", "--addr", all[0].addr)
	d.waiters(all[0], "invoices", 1)
	signalAgents(t, syscall.SIGSTOP, all[1], all[2])
	t.Cleanup(func() { signalAgents(t, syscall.SIGCONT, all[1], all[2]) })
	waiter.line("trying again until the group answers")
	must0(t, waiter.cmd.Process.Signal(syscall.SIGTERM))
	if code := waiter.wait(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d\n%s", code, waiter.printed())
	}
}

// outage is a group of three of which one member is dead and one is paused: the first one has no leader.
func (d *deployment) outage() [3]*operated {
	d.t.Helper()
	all := d.found()
	d.ask(all[0], "kv", "put", "jobs/1", "tidy up")
	d.holder(all[:]...).fence()
	d.healthy(all[0], 3, 0)
	all[1].kill()
	signalAgents(d.t, syscall.SIGSTOP, all[2])
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		r := d.result(all[0], "members")
		if r.code == exitUnavailable && strings.Count(r.out, " NO ") == 2 {
			return all
		}
	}
	d.t.Fatal("the group has a leader, or its last member does not know the others to be dead")
	return all
}

// Beside a dead member and a paused one each command that reads prints what the third has, which addresses answer, and what
// to do, and exits with 5.
func TestOutage_EachCommand(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.outage()
	address := func(i int, answer string) string { return all[i].addr + " " + answer }
	report := []string{
		"no leader has been known for ", "this member reaches 1 of 3 voters, no majority", "age", "next: start ", "ben at " + all[1].addr, "clara at " + all[2].addr,
		address(0, "answered: voter anna"), address(1, "refused: "), address(2, "timed out: "),
	}
	for _, c := range []struct {
		args     string
		out, err []string
	}{
		{"status", append([]string{"leader: none is known", "quorum: NO", "as seen by: voter anna"}, report...), []string{"what is shown is what anna has, and may be old"}},
		{"members", []string{all[0].id.String(), all[1].id.String(), all[2].id.String()}, report},
		{"members -o json", []string{`"id":"` + all[2].id.String()}, report},
		{"kv get jobs/1 --stale", []string{"tidy up"}, append(report, "what is shown is what anna has, and may be old")},
		{"kv get jobs/1 --stale -o json", []string{`"value": "tidy up"`}, report},
		{"kv get jobs/2 --stale", nil, append(report, "key not found")},
		{"kv ls --stale", []string{"jobs/1"}, report},
		{"kv ls --stale --keys", []string{"jobs/1"}, report},
		{"locks --stale", []string{"invoices"}, report},
		{"health", []string{"anna (" + all[0].id.String() + "):", "[+]loop ok", "[-]leader failed: no leader has been known for", address(1, "refused: "), address(2, "timed out: ")},
			[]string{"a member is not ready"}},
		{"kv get jobs/1 --timeout 5s", nil, []string{"no quorum of the group is reachable", "conclave status"}},
		{"status --timeout 2s", []string{address(2, "timed out: "), "no answer within"}, nil},
	} {
		r := d.result(all[0], strings.Fields(c.args)...)
		out, errs := strings.Join(strings.Fields(r.out), " "), strings.Join(strings.Fields(r.err), " ")
		missing := func(in string, texts []string) (missing []string) {
			for _, text := range texts {
				if !strings.Contains(in, strings.TrimSpace(text)) {
					missing = append(missing, text)
				}
			}
			return missing
		}
		if lacksOut, lacksErr := missing(out, c.out), missing(errs, c.err); r.code != exitUnavailable || lacksOut != nil || lacksErr != nil {
			t.Errorf("conclave %s: exit code %d, lacks %q and %q:\n%s%s", c.args, r.code, lacksOut, lacksErr, r.out, r.err)
		}
		if c.out == nil && r.out != "" {
			t.Errorf("conclave %s prints %s", c.args, r.out)
		}
	}
}

// While an election may be under way the addresses are asked again, and what the last ones had no time to answer is not
// reported in place of what they did before.
func TestOutage_TimeoutWhileAskedAgain(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	d.healthy(all[0], 3, 0)
	all[1].kill()
	signalAgents(t, syscall.SIGSTOP, all[2])
	r := d.result(all[0], "status", "--timeout", "2s")
	for deadline := time.Now().Add(patience); r.code != exitUnavailable && time.Now().Before(deadline); {
		r = d.result(all[0], "status", "--timeout", "2s")
	}
	if out := strings.Join(strings.Fields(r.out), " "); r.code != exitUnavailable || !strings.Contains(out, all[2].addr+" timed out: ") || !strings.Contains(out, "no answer within ") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
}

func TestOutage_JSON(t *testing.T) {
	t.Parallel()
	type printed struct { // an outageView, which package json does not decode
		statusView
		Reason, Next string
		Age          *float64
		Addresses    []addressView
	}
	d := newDeployment(t)
	all := d.outage()
	v := decoded[printed](t, d.result(all[0], "status", "-o", "json").out)
	if v.ID != all[0].id || v.Leader != 0 || v.Redundancy >= 0 || v.Reason == "" || v.Next == "" || v.Age == nil || *v.Age <= 0 {
		t.Errorf("%+v", v)
	}
	answers := make(map[string]string)
	for _, a := range v.Addresses {
		answers[a.Addr] = a.Answer
	}
	if want := map[string]string{all[0].addr: hasAnswered, all[1].addr: hasRefused, all[2].addr: timedOut}; !maps.Equal(answers, want) {
		t.Errorf("%v, want %v", answers, want)
	}
	r := d.result(all[0], "health", "-o", "json")
	first, _, _ := strings.Cut(r.out, "\n")
	if h := decoded[healthView](t, first); h.Ready || !h.Live || h.Contact == nil || len(h.Checks) == 0 || h.Name != "anna" {
		t.Errorf("%s", r.out)
	}
	r = d.result(all[1], "status", "-o", "json", "--timeout", "5s") // at a member that is dead
	if v := decoded[printed](t, r.out); r.code != exitUnavailable || v.ID != 0 || strings.Contains(r.out, `"leader"`) || len(v.Addresses) != 1 || v.Addresses[0].Answer != hasRefused {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

// The exit code of a backup says whether there is a file: after 0 and 7, and after no other code.
func TestOutage_Backup(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.outage()
	file := filepath.Join(d.dir, "unconfirmed.backup")
	r := d.result(all[0], "backup", file)
	want(t, r, exitUnconfirmed, "no quorum has confirmed")
	if !strings.Contains(r.out, " bytes") {
		t.Errorf("prints %q", r.out)
	}
	d.operate("restore", file, "--dir", filepath.Join(d.dir, "restored"))
	missing := filepath.Join(d.dir, "missing.backup")
	want(t, d.result(all[1], "backup", missing, "--timeout", "5s"), exitUnavailable, "check that the member runs")
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
}

// With a leader the commands that read print no report, and health is that of all members.
func TestOutage_None(t *testing.T) {
	d := newDeployment(t)
	all := d.found("--memory")
	d.ask(all[0], "kv", "put", "k", "v")
	for _, args := range []string{"status", "members", "kv get k --stale", "kv ls --stale", "locks --stale", "health"} {
		if r := d.result(all[0], strings.Fields(args)...); r.code != 0 || r.err != "" {
			t.Errorf("conclave %s: exit code %d\n%s%s", args, r.code, r.out, r.err)
		}
	}
	if out := d.ask(all[0], "health"); strings.Count(out, "[+]leader ok") != 3 {
		t.Error(out)
	}
	want(t, d.result(all[0], "kv", "get", "other", "--stale"), exitRefused, "key not found")
	t.Setenv("CONCLAVE_ADDR", all[0].addr) // does not make a probe of the agent one of the members
	var out, errs strings.Builder
	if run([]string{"health", "--timeout", "1s"}, nil, &out, &errs); strings.Contains(out.String(), all[0].id.String()) {
		t.Error(out.String())
	}
}

// A stale read is labelled with the member that was read, and not with the one that has the latest state.
func TestOutage_NamesMemberRead(t *testing.T) {
	report := func(id conclave.MemberID, name string, applied uint64) conclave.MemberReport {
		return conclave.MemberReport{Addr: name, Status: conclave.Status{ID: id, Name: name, Applied: applied}}
	}
	o := outage{reports: []conclave.MemberReport{report(1, "anna", 10), report(2, "ben", 20)}}
	o.member = &o.reports[1]
	for _, s := range []conclave.Status{o.reports[0].Status, {ID: 3, Name: "clara"}} {
		if o.shows(s); !strings.Contains(o.String(), "what "+s.Name+" has") {
			t.Errorf("%s: %s", s.Name, o.String())
		}
	}
}

// status waits for an election: it does not show a leader that is dead, and the members that do not know that yet.
func TestStatus_LeaderDied(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	d.healthy(all[0], 3, 0)
	var leader conclave.MemberID
	d.await(all[0], "a leader", func(s statusView) bool { leader = s.Leader; return leader != 0 })
	dead := slices.IndexFunc(all[:], func(m *operated) bool { return m.id == leader })
	all[dead].kill()
	next := all[(dead+1)%3]
	d.await(next, "another leader", func(s statusView) bool {
		if s.Leader == leader || s.Leader == 0 {
			t.Errorf("%v led and is dead, and status shows %v", leader, s.Leader)
		}
		return true // the first answer is the right one
	})
}

// A member whose build does not report its health says so.
func TestOutage_OlderBuild(t *testing.T) {
	r := conclave.MemberReport{Addr: "127.0.0.1:1", Status: conclave.Status{ID: 1, Name: "anna"}}
	o := outage{reports: []conclave.MemberReport{r}, member: &r}
	if text := o.String(); !strings.Contains(text, "a build that does not report why") || !strings.Contains(text, "age: not known") || o.age() != nil {
		t.Error(text)
	}
	if h := healthOf(r); h.Ready || !strings.Contains(h.Error, "a build that does not report its health to clients") {
		t.Errorf("%+v", h)
	}
}
