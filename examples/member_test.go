//go:build unix

package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
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

// holder checks that these members agree on one of them as the holder, and
// returns it with its fence.
func (g *lockGroup) holder(among ...int) (holder, fence int) {
	g.t.Helper()
	holder = -1
	for k, i := range among {
		f, itself := g.members[i].holds()
		if k > 0 && f != fence {
			g.t.Fatalf("%s prints fence %d, another member prints %d", g.members[i].name, f, fence)
		}
		fence = f
		if itself {
			if holder >= 0 {
				g.t.Fatalf("%s and %s both hold fence %d", g.members[holder].name, g.members[i].name, f)
			}
			holder = i
		}
	}
	if holder < 0 {
		g.t.Fatalf("none of the members %v holds fence %d", among, fence)
	}
	return holder, fence
}

// others returns the two members other than i.
func others(i int) []int { return []int{(i + 1) % 3, (i + 2) % 3} }

// The next waiter acquires the lock after the TTL, with a larger fence. The
// killed member restarts on another port with its identity.
func TestMember_HolderKilled(t *testing.T) {
	t.Parallel()
	g := newLockGroup(t, "2s")
	killed, old := g.holder(0, 1, 2)
	g.members[killed].expectKillCommand()
	id := g.members[killed].id
	g.members[killed].kill()
	successor, fence := g.holder(others(killed)...)
	if fence <= old {
		t.Errorf("got fence %d, want more than %d", fence, old)
	}

	g.start(killed, g.members[successor].addr)
	if got := g.members[killed].expect(`open: member (\w+) of a group of 3`)[0]; got != id {
		t.Errorf("restarted as member %s, want %s", got, id)
	}
	if seen, itself := g.members[killed].holds(); seen != fence || itself {
		t.Errorf("after the restart: holder has fence %d (this member: %t), want %d of another member", seen, itself, fence)
	}
}

// Ctrl-C releases the lock at once. With a TTL of an hour, expiry cannot be the
// reason.
func TestMember_HolderInterrupted(t *testing.T) {
	t.Parallel()
	g := newLockGroup(t, "1h")
	closing, old := g.holder(0, 1, 2)
	g.members[closing].signal(os.Interrupt)
	if _, fence := g.holder(others(closing)...); fence <= old {
		t.Errorf("got fence %d, want more than %d", fence, old)
	}
	g.members[closing].expect("shutting down gracefully")
	g.members[closing].expect("closed$")
	if status := g.members[closing].wait(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// The graceful shutdown takes a while when the other members do not answer. A
// second Ctrl-C ends the process at once.
func TestMember_InterruptedTwice(t *testing.T) {
	t.Parallel()
	g := newLockGroup(t, "1h")
	holder, _ := g.holder(0, 1, 2)
	for _, i := range others(holder) {
		g.members[i].signal(syscall.SIGSTOP)
	}
	g.members[holder].signal(os.Interrupt)
	g.members[holder].expect("shutting down gracefully")
	g.members[holder].signal(os.Interrupt)
	if status := g.members[holder].wait(); status != -1 {
		t.Errorf("exit status %d, want the end by a signal", status)
	}
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
