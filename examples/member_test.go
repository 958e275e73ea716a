//go:build unix

package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// lockGroup is three members that share a lock.
type lockGroup struct {
	t       *testing.T
	dir     string
	ttl     string
	members [3]*lockMember
}

type lockMember struct {
	*process
	addr string
	id   string
	name string
}

func newLockGroup(t *testing.T, ttl string) *lockGroup {
	t.Helper()
	g := &lockGroup{t: t, dir: t.TempDir(), ttl: ttl}
	first := ""
	for i := range g.members {
		g.start(i, first)
		first = g.members[0].addr
	}
	for _, m := range g.members {
		m.id = m.expect(`open: member (\w+) of a group of 3`)[0]
	}
	return g
}

// start starts a member that joins the given address, if there is one.
func (g *lockGroup) start(i int, join string) {
	g.t.Helper()
	name := []string{"anna", "ben", "clara"}[i]
	args := []string{"-dir", filepath.Join(g.dir, name), "-expect", "3", "-lock", "invoices", "-name", name, "-ttl", g.ttl}
	if join != "" {
		args = append(args, "-join", join)
	}
	m := &lockMember{process: start(g.t, name, nil, "member", args...), name: name}
	m.addr = m.expect(`listening on (\S+);`)[0]
	g.members[i] = m
}

var holderLine = regexp.MustCompile(`HOLDER .*fence (\d+)$|waiting for "invoices": held by .*fence (\d+)$`)

// holds waits until the member prints the holder of the lock, and returns the
// fence and whether the member itself is the holder.
func (m *lockMember) holds() (fence int, itself bool) {
	m.t.Helper()
	match := m.expect(holderLine.String())
	fence, err := strconv.Atoi(match[0] + match[1])
	if err != nil {
		m.t.Fatal(err)
	}
	return fence, match[0] != ""
}

// holder waits until these members agree on one of them as the holder, with a
// fence larger than after, and returns it. Meanwhile they may print others, whose
// session has expired since.
func (g *lockGroup) holder(after int, among ...int) (holder, fence int) {
	g.t.Helper()
	fences, holds := make([]int, len(among)), make([]bool, len(among))
	for fence = after + 1; slices.Min(fences) < fence; {
		for k, i := range among {
			for fences[k] < fence {
				fences[k], holds[k] = g.members[i].holds()
			}
			fence = fences[k]
		}
	}
	k := slices.Index(holds, true)
	if k < 0 || slices.Contains(holds[k+1:], true) {
		g.t.Fatalf("fence %d: of the members %v hold it %v, want exactly one", fence, among, holds)
	}
	return among[k], fence
}

// others returns the two members other than i.
func others(i int) []int { return []int{(i + 1) % 3, (i + 2) % 3} }

// The next waiter acquires the lock after the TTL, with a larger fence. The
// killed member restarts on another port with its identity.
func TestMember_HolderKilled(t *testing.T) {
	t.Parallel()
	g := newLockGroup(t, "10s")
	killed, old := g.holder(0, 0, 1, 2)
	g.members[killed].expectKillCommand()
	id := g.members[killed].id
	g.members[killed].kill()
	successor, fence := g.holder(old, others(killed)...)

	g.start(killed, g.members[successor].addr)
	if got := g.members[killed].expect(`open: member (\w+) of a group of 3`)[0]; got != id {
		t.Errorf("restarted as member %s, want %s", got, id)
	}
	// A larger fence is that of a later holder.
	if seen, itself := g.members[killed].holds(); seen < fence || itself && seen == fence {
		t.Errorf("after the restart: holder has fence %d (this member: %t), want %d of another member", seen, itself, fence)
	}
}

// Ctrl-C releases the lock at once. The last renewal is at most a third of the TTL
// old, so a grant in the first two thirds of the minute is not due to expiry. Only a
// shutdown that ended after its limit, three election timeouts, may leave the release
// to expiry.
func TestMember_HolderInterrupted(t *testing.T) {
	t.Parallel()
	const earliestExpiry, graceful = 40 * time.Second, 3 * time.Second
	g := newLockGroup(t, "1m")
	closing, old := g.holder(0, 0, 1, 2)
	began := time.Now()
	g.members[closing].signal(os.Interrupt)
	g.members[closing].expect("shutting down gracefully")
	shutting := time.Now()
	g.members[closing].expect("closed$")
	complete := time.Since(shutting) < graceful
	g.holder(old, others(closing)...)
	if took := time.Since(began); complete && took >= earliestExpiry {
		t.Errorf("the lock was granted after %v, want at once", took)
	}
	if status := g.members[closing].wait(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// The graceful shutdown takes up to three seconds when the other members do not
// answer. A second Ctrl-C ends the process at once. On a slow machine that signal may
// come after the shutdown, which shows nothing: then another group is tried.
func TestMember_InterruptedTwice(t *testing.T) {
	t.Parallel()
	for range 5 {
		g := newLockGroup(t, "1h")
		holder, _ := g.holder(0, 0, 1, 2)
		for _, i := range others(holder) {
			g.members[i].signal(syscall.SIGSTOP)
		}
		g.members[holder].signal(os.Interrupt)
		g.members[holder].expect("shutting down gracefully")
		_ = g.members[holder].cmd.Process.Signal(os.Interrupt) // it fails if the process has ended
		switch status := g.members[holder].wait(); status {
		case -1:
			return
		case 0: // the signal came too late, or had no effect
		default:
			t.Fatalf("exit status %d, want the end by a signal", status)
		}
	}
	t.Error("the process ends gracefully each time, want the end by the second signal")
}

// Ctrl-C ends a member that waits for its group.
func TestMember_InterruptedWhileOpening(t *testing.T) {
	t.Parallel()
	p := start(t, "alone", nil, "member", "-dir", t.TempDir(), "-lock", "invoices", "-expect", "3")
	p.expect("waiting for a majority")
	p.signal(os.Interrupt)
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}
