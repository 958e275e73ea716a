//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// deployment is agents that an operator starts, stops and asks.
type deployment struct {
	t        *testing.T
	dir      string
	password string // a file
	any      string // the address of an agent that runs
}

// operated is an agent that an operator can reach.
type operated struct {
	*process
	name, dir, addr, web string
	id                   conclave.MemberID
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{t: t, dir: t.TempDir()}
	d.password = filepath.Join(d.dir, "password")
	must0(t, os.WriteFile(d.password, []byte(testPassword), 0o600))
	return d
}

// start starts an agent in a directory of its name, or with its arguments in memory.
func (d *deployment) start(name string, args ...string) *operated {
	d.t.Helper()
	m := &operated{name: name, dir: filepath.Join(d.dir, name)}
	all := []string{"agent", "--name", name, "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--console-password-file", d.password}
	if d.any != "" {
		all = append(all, "--join", d.any)
	}
	if len(args) == 0 || args[0] != "--memory" {
		all = append(all, "--dir", m.dir)
	}
	m.process = start(d.t, append(all, args...)...)
	m.addr, m.web = agentAddrs(d.t, m.line("msg=listening"))
	if d.any == "" {
		d.any = m.addr
	}
	return m
}

// found starts three agents that form a group.
func (d *deployment) found(args ...string) [3]*operated {
	d.t.Helper()
	var all [3]*operated
	args = append(args, "--expect", "3")
	for i, name := range []string{"anna", "ben", "clara"} {
		all[i] = d.start(name, args...)
	}
	for _, m := range all {
		d.opened(m)
	}
	return all
}

// opened blocks until the member is in its group.
func (d *deployment) opened(m *operated) {
	d.t.Helper()
	m.line("msg=open")
	d.await(m, "its ID", func(s statusView) bool { m.id = s.ID; return true })
}

// operate runs a command and returns what it prints.
func (d *deployment) operate(args ...string) string {
	d.t.Helper()
	var out, errs bytes.Buffer
	if code := run(args, nil, &out, &errs); code != 0 {
		d.t.Fatalf("conclave %s: exit code %d\n%s%s", strings.Join(args, " "), code, out.String(), errs.String())
	}
	return out.String()
}

// poll is operate for a command whose exit code is 5 while an election takes longer than the command waits. ok reports
// whether it was not.
func (d *deployment) poll(args ...string) (text string, ok bool) {
	d.t.Helper()
	var out, errs bytes.Buffer
	code := run(args, nil, &out, &errs)
	if code != 0 && code != exitUnavailable {
		d.t.Fatalf("conclave %s: exit code %d\n%s%s", strings.Join(args, " "), code, out.String(), errs.String())
	}
	return out.String(), code == 0
}

// result runs a command that connects to a member, whatever comes of it.
func (d *deployment) result(m *operated, args ...string) result {
	var out, errs bytes.Buffer
	code := run(append([]string{"--addr", m.addr}, args...), nil, &out, &errs)
	return result{out.String(), errs.String(), code}
}

// ask runs a command that connects to a member.
func (d *deployment) ask(m *operated, args ...string) string {
	d.t.Helper()
	return d.operate(append([]string{"--addr", m.addr}, args...)...)
}

// holder starts a process that acquires the lock and holds it.
func (d *deployment) holder(among ...*operated) *process {
	d.t.Helper()
	var addrs []string
	for _, m := range among {
		addrs = append(addrs, m.addr)
	}
	return start(d.t, "lock", "invoices", "--ttl", "1h", "--addr", strings.Join(addrs, ","))
}

// fence blocks until the holder has acquired the lock.
func (p *process) fence() conclave.Fence {
	p.t.Helper()
	_, text, _ := strings.Cut(p.line("is held with fence "), "is held with fence ")
	text, _, _ = strings.Cut(text, ": interrupt")
	f, err := conclave.ParseFence(text)
	must0(p.t, err)
	return f
}

// await blocks until the status that a member shows is what is wanted.
func (d *deployment) await(m *operated, what string, shows func(statusView) bool) {
	d.t.Helper()
	d.awaitBy(m.name+" to show "+what, shows, "status", "-o", "json", "--addr", m.addr)
}

// awaitBy blocks until a command prints the status that is wanted.
func (d *deployment) awaitBy(what string, shows func(statusView) bool, command ...string) {
	d.t.Helper()
	var text string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		var ok bool
		if text, ok = d.poll(command...); ok && shows(decoded[statusView](d.t, text)) {
			return
		}
		<-time.After(50 * time.Millisecond) // the command does not wait
	}
	d.t.Fatalf("want %s, got %s", what, text)
}

func (s statusView) count(role string) (n int) {
	for _, m := range s.Members {
		if m.Role == role {
			n++
		}
	}
	return n
}

func (s statusView) role(id conclave.MemberID) string {
	for _, m := range s.Members {
		if m.ID == id {
			return m.Role
		}
	}
	return "none"
}

// healthy blocks until so many voters are all alive, and no change is under way.
func (d *deployment) healthy(m *operated, voters, standbys int) {
	d.t.Helper()
	d.await(m, fmt.Sprintf("%d voters and %d standbys", voters, standbys), func(s statusView) bool {
		return s.count("voter") == voters && s.count("standby") == standbys && s.Redundancy == (voters-1)/2 && s.Leader != 0
	})
}

// ready blocks until a probe succeeds.
func (d *deployment) ready(m *operated) {
	d.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if status, _ := get(d.t, "http://"+m.web+"/readyz", "", ""); status == 200 {
			return
		}
		<-time.After(20 * time.Millisecond) // a probe does not wait
	}
	d.t.Fatalf("%s is not ready", m.name)
}
