//go:build unix

package examples

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The procedures of docs/OPERATIONS.md, with the commands that stand there.

// deployment is members that an operator starts, stops and asks.
type deployment struct {
	t   *testing.T
	dir string
	any string // the address of a member that runs
}

// operated is a member that an operator can reach.
type operated struct {
	*process
	dir, addr, admin, id string
}

func newDeployment(t *testing.T) *deployment { return &deployment{t: t, dir: t.TempDir()} }

// start starts a member in a directory of its name, or with its arguments in memory.
func (d *deployment) start(name string, args ...string) *operated {
	d.t.Helper()
	m := &operated{dir: filepath.Join(d.dir, name)}
	all := []string{"-name", name, "-admin", "127.0.0.1:0"}
	if d.any != "" {
		all = append(all, "-join", d.any)
	}
	if len(args) == 0 || args[0] != "-memory" {
		all = append(all, "-dir", m.dir)
	}
	m.process = start(d.t, name, nil, "member", append(all, args...)...)
	m.admin = m.expect(`admin on (\S+)$`)[0]
	m.addr = m.expect(`listening on (\S+)$`)[0]
	if d.any == "" {
		d.any = m.addr
	}
	return m
}

// found starts three members that form a group.
func (d *deployment) found(args ...string) [3]*operated {
	d.t.Helper()
	var all [3]*operated
	args = append(args, "-expect", "3")
	for i, name := range []string{"anna", "ben", "clara"} {
		all[i] = d.start(name, args...)
	}
	for _, m := range all {
		m.opened()
	}
	return all
}

// opened waits until the member is in its group.
func (m *operated) opened() {
	m.t.Helper()
	m.id = m.expect(`open: member (\w+) of a group`)[0]
}

// operate runs a command to its end and returns what it prints.
func (d *deployment) operate(args ...string) string {
	d.t.Helper()
	out, err := exec.Command(filepath.Join(programs, "member"), args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("member %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// groupStatus is what "member status" prints.
type groupStatus struct {
	ID, Leader, Role, Reconciling string
	Redundancy                    int
	Members                       []struct {
		ID, Role string
		Alive    bool
	}
}

func (s *groupStatus) count(role string) (n int) {
	for _, m := range s.Members {
		if m.Role == role {
			n++
		}
	}
	return n
}

func (s *groupStatus) role(id string) string {
	for _, m := range s.Members {
		if m.ID == id {
			return m.Role
		}
	}
	return "none"
}

// await waits until "member status" of a member shows what is wanted.
func (d *deployment) await(m *operated, what string, shows func(*groupStatus) bool) (s *groupStatus) {
	d.t.Helper()
	for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); {
		s = &groupStatus{}
		if err := json.Unmarshal([]byte(d.operate("status", "-admin", m.admin)), s); err != nil {
			d.t.Fatal(err)
		}
		if shows(s) {
			return s
		}
		<-time.After(50 * time.Millisecond) // the command does not wait
	}
	d.t.Fatalf("%s does not show %s: %+v", m.name, what, s)
	return nil
}

// healthy waits until so many voters are all alive, and no change is under way.
func (d *deployment) healthy(m *operated, voters, standbys int) {
	d.t.Helper()
	d.await(m, "a healthy group", func(s *groupStatus) bool {
		return s.count("voter") == voters && s.count("standby") == standbys && s.Redundancy == (voters-1)/2 && s.Leader != strings.Repeat("0", 16)
	})
}

// ready waits as a probe does.
func (m *operated) ready() {
	m.t.Helper()
	for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); {
		if probe(m.t, m.admin, "/readyz") == http.StatusOK {
			return
		}
		<-time.After(20 * time.Millisecond) // a probe does not wait
	}
	m.t.Fatalf("%s is not ready", m.name)
}

// probe returns the status of a path, or 0 if no process listens.
func probe(t *testing.T, addr, path string) int {
	t.Helper()
	response, err := http.Get("http://" + addr + path)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// A machine is lost. A new one with an empty directory joins and votes in its place.
func TestOperations_ReplaceMachine(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	d.healthy(all[0], 3, 0)
	d.operate("config", "-admin", all[0].admin, "-replace-after", "5s")
	lost := all[2]
	lost.kill()
	if err := os.RemoveAll(lost.dir); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	replacement := d.start("clara")
	replacement.opened()
	d.await(all[0], "the replacement as a voter", func(s *groupStatus) bool {
		return s.role(replacement.id) == "voter" && s.role(lost.id) == "standby" && s.Redundancy == 1
	})
	t.Logf("full redundancy again after %v", time.Since(began).Round(time.Millisecond))
	d.operate("remove", "-admin", all[0].admin, "-member", lost.id)
	d.healthy(all[0], 3, 0)
	d.healthy(replacement, 3, 0)
	all[0].kill() // the group survives the loss of another one
	d.await(replacement, "a leader", func(s *groupStatus) bool { return s.Leader != all[0].id && s.Leader != strings.Repeat("0", 16) })
	d.operate("config", "-admin", replacement.admin)
}

// Three members become five, and three again.
func TestOperations_Scale(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	fourth, fifth := d.start("dora"), d.start("emil")
	fourth.opened()
	fifth.opened()
	d.healthy(all[0], 3, 2)
	d.operate("config", "-admin", all[0].admin, "-voters", "5")
	d.healthy(all[0], 5, 0)
	d.operate("config", "-admin", all[0].admin, "-voters", "3")
	d.healthy(all[0], 3, 2)
	for _, m := range []*operated{fourth, fifth} {
		d.operate("leave", "-admin", m.admin)
		if status := m.wait(); status != 0 {
			t.Errorf("%s: exit status %d after it left, want 0", m.name, status)
		}
	}
	d.healthy(all[0], 3, 0)
	for _, m := range all {
		if text := strings.Join(m.text(), "\n"); strings.Contains(text, "NO QUORUM") || strings.Contains(text, "not a member any more") {
			t.Errorf("%s warns, and nothing has failed", m.name)
		}
	}
	again := d.start("emil")
	if status := again.wait(); status != 3 {
		t.Errorf("the removed member: exit status %d, want 3", status)
	}
}

// All members of a Deployment are replaced, one after the other: the new process joins,
// is ready, and then the old one gets SIGTERM and leaves.
func TestOperations_DeploymentRollout(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	args := []string{"-memory", "-leave", "-expect", "3", "-lock", "invoices", "-ttl", "1h"}
	all := d.found(args...)
	d.healthy(all[0], 3, 0)
	for round := range 3 {
		old := all[round]
		began := time.Now()
		all[round] = d.start("round "+string(rune('1'+round)), args...)
		all[round].ready()
		joined := time.Since(began)
		old.signal(syscall.SIGTERM)
		old.expect("left the group")
		if status := old.wait(); status != 0 {
			t.Errorf("exit status %d, want 0", status)
		}
		t.Logf("round %d: ready after %v, the old one ended after %v", round+1, joined.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		d.any = all[round].addr
		d.healthy(all[round], 3, 0)
	}
	expectAny(t, `HOLDER of "invoices"`, all[0].process, all[1].process, all[2].process)
}

// A group is restored from a backup, with larger fences, and grows to three voters.
func TestOperations_BackupAndRestore(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found("-lock", "invoices")
	_, old := expectAny(t, `HOLDER of "invoices" with fence (\d+)$`, all[0].process, all[1].process, all[2].process)
	file := filepath.Join(d.dir, "group.backup")
	d.operate("backup", "-admin", all[1].admin, "-file", file)
	for _, m := range all {
		m.kill()
	}
	d.succeed(file, "restore", "-dir", filepath.Join(d.dir, "restored"), "-file", file)
	t.Logf("the old group's fence was %s", old[0])
}

// succeed makes a new group with a command, of three voters in the end, whose fences are
// of the next epoch.
func (d *deployment) succeed(what string, args ...string) {
	d.t.Helper()
	if out := d.operate(args...); !strings.Contains(out, "no member has started on it yet") {
		d.t.Errorf("%s: the directory is no seed:\n%s", what, out)
	}
	dir := args[2]
	d.any = ""
	first := d.start(filepath.Base(dir), "-lock", "invoices")
	first.opened()
	first.expect(`HOLDER of "invoices" with fence 1:\d+$`)
	for _, name := range []string{"new ben", "new clara"} {
		d.start(name).opened()
	}
	d.healthy(first, 3, 0)
}

// Two of three machines are lost. The last one is recovered, and gets two new ones.
func TestOperations_LostMajority(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found("-lock", "invoices")
	d.healthy(all[0], 3, 0)
	for _, m := range all[1:] {
		m.kill()
		if err := os.RemoveAll(m.dir); err != nil {
			t.Fatal(err)
		}
	}
	d.await(all[0], "no quorum", func(s *groupStatus) bool { return s.Redundancy < 0 && s.Leader == strings.Repeat("0", 16) })
	if status := probe(t, all[0].admin, "/console/"); status != http.StatusOK {
		t.Errorf("/console/ %d", status)
	}
	if ready, live := probe(t, all[0].admin, "/readyz"), probe(t, all[0].admin, "/livez"); ready != http.StatusServiceUnavailable || live != http.StatusOK {
		t.Errorf("without a quorum: /readyz %d, /livez %d; want 503, 200", ready, live)
	}
	all[0].signal(syscall.SIGTERM)
	if status := all[0].wait(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	d.operate("verify", "-dir", all[0].dir)
	d.succeed("a survivor", "recover", "-dir", all[0].dir)
}
