//go:build unix

package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// team is three members that share a lock.
type team struct {
	t       *testing.T
	dir     string
	ttl     string
	members [3]*teammate
}

type teammate struct {
	*process
	addr string
	id   string
	name string
}

func newTeam(t *testing.T, ttl string) *team {
	t.Helper()
	tm := &team{t: t, dir: t.TempDir(), ttl: ttl}
	first := ""
	for i := range tm.members {
		tm.start(i, first)
		first = tm.members[0].addr
	}
	for _, m := range tm.members {
		m.id = m.expect(`open: member (\w+) of a group of 3`)[0]
	}
	return tm
}

// start runs a member that knows one of the others, or none.
func (tm *team) start(i int, join string) {
	tm.t.Helper()
	name := []string{"anna", "ben", "clara"}[i]
	args := []string{"-dir", filepath.Join(tm.dir, name), "-expect", "3", "-lock", "invoices", "-name", name, "-ttl", tm.ttl}
	if join != "" {
		args = append(args, "-join", join)
	}
	m := &teammate{process: start(tm.t, name, nil, "member", args...), name: name}
	m.addr = m.expect(`listening on (\S+)$`)[0]
	tm.members[i] = m
}

var says = regexp.MustCompile(`HOLDER .*fence (\d+)$|waiting for "invoices": held by .*fence (\d+)$`)

// holds waits until a member says who holds the lock, and returns with which
// fence, and whether it is that member itself.
func (m *teammate) holds() (fence int, itself bool) {
	m.t.Helper()
	match := m.expect(says.String())
	fence, err := strconv.Atoi(match[0] + match[1])
	if err != nil {
		m.t.Fatal(err)
	}
	return fence, match[0] != ""
}

// holder wants these members to agree on one of them as the holder, and returns
// which, with its fence.
func (tm *team) holder(among ...int) (holder, fence int) {
	tm.t.Helper()
	holder = -1
	for k, i := range among {
		f, itself := tm.members[i].holds()
		if k > 0 && f != fence {
			tm.t.Fatalf("%s knows of fence %d, another of %d", tm.members[i].name, f, fence)
		}
		fence = f
		if itself {
			if holder >= 0 {
				tm.t.Fatalf("%s and %s hold fence %d", tm.members[holder].name, tm.members[i].name, f)
			}
			holder = i
		}
	}
	if holder < 0 {
		tm.t.Fatalf("nobody among %v holds fence %d", among, fence)
	}
	return holder, fence
}

// others are the two that are not i.
func others(i int) []int { return []int{(i + 1) % 3, (i + 2) % 3} }

// The holder is killed with -9. After its TTL the next one holds the lock, with a
// larger fence. The killed one comes back, on another port, as who it was.
func TestMemberKilled(t *testing.T) {
	t.Parallel()
	tm := newTeam(t, "2s")
	dead, old := tm.holder(0, 1, 2)
	id := tm.members[dead].id
	tm.members[dead].kill()
	heir, fence := tm.holder(others(dead)...)
	if fence <= old {
		t.Errorf("fence %d after %d", fence, old)
	}

	tm.start(dead, tm.members[heir].addr)
	if got := tm.members[dead].expect(`open: member (\w+) of a group of 3`)[0]; got != id {
		t.Errorf("came back as %s, was %s", got, id)
	}
	if seen, itself := tm.members[dead].holds(); seen != fence || itself {
		t.Errorf("came back and sees fence %d, its own: %t; want %d of another", seen, itself, fence)
	}
}

// Ctrl-C hands the lock on. The TTL is an hour, so it is not that which does it.
func TestMemberTakesLeave(t *testing.T) {
	t.Parallel()
	tm := newTeam(t, "1h")
	leaving, old := tm.holder(0, 1, 2)
	tm.members[leaving].signal(os.Interrupt)
	if _, fence := tm.holder(others(leaving)...); fence <= old {
		t.Errorf("fence %d after %d", fence, old)
	}
	tm.members[leaving].expect("taking leave")
	tm.members[leaving].expect("closed$")
	if status := tm.members[leaving].wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// The farewell takes its time when the others do not answer. A second Ctrl-C
// does not wait for it.
func TestMemberInterruptedTwice(t *testing.T) {
	t.Parallel()
	tm := newTeam(t, "1h")
	impatient, _ := tm.holder(0, 1, 2)
	for _, i := range others(impatient) {
		tm.members[i].signal(syscall.SIGSTOP)
	}
	tm.members[impatient].signal(os.Interrupt)
	tm.members[impatient].expect("taking leave")
	tm.members[impatient].signal(os.Interrupt)
	if status := tm.members[impatient].wait(); status != -1 {
		t.Errorf("exit status %d; it has to be killed by the signal", status)
	}
}

// Ctrl-C before there is a group ends it as well.
func TestMemberInterruptedEarly(t *testing.T) {
	t.Parallel()
	p := start(t, "alone", nil, "member", "-dir", t.TempDir(), "-lock", "invoices", "-expect", "3")
	p.expect("takes until a majority")
	p.signal(os.Interrupt)
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// Wrong flags: status 2, a line that says what is wrong, and nothing is done.
func TestMemberFlags(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-lock", "invoices"}, "-dir is missing"},
		{[]string{"-dir", dir}, "-lock is missing"},
		{[]string{"-dir", dir, "-lock", "invoices", "now"}, `"now" is not a flag`},
		{[]string{"-dir", dir, "-lock", "invoices", "-wait"}, "-wait"},
		{[]string{"-dir", dir, "-lock", "invoices", "-ttl", "10"}, `invalid value "10"`},
		{[]string{"-dir", dir, "-lock", "invoices", "-ttl", "1ms"}, "SessionTTL is 1ms"},
		{[]string{"-dir", dir, "-lock", "invoices", "-bind", "0.0.0.0:0"}, "set Advertise"},
		{[]string{"-dir", dir, "-lock", "invoices", "-join", "here"}, `Join "here" has to be host:port`},
		{[]string{"-dir", dir, "-lock", ""}, "-lock is missing"},
	} {
		p := start(t, "member", nil, "member", c.args...)
		status, text := p.wait(), strings.Join(p.text(), "\n")
		if status != 2 || !strings.Contains(text, c.want) {
			t.Errorf("%q: exit status %d; want %q in\n%s", c.args, status, c.want, text)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s: %v; it has to be as it was", dir, err)
	}
}

// Help is what was asked for, so it is no fault.
func TestMemberHelp(t *testing.T) {
	t.Parallel()
	p := start(t, "member", nil, "member", "-help")
	p.expect("-dir directory")
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
