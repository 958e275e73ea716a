//go:build unix

package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// rounds is how often the tests of this file repeat what they do to a directory: in 12 rounds each member restarts once as an original.
func rounds() int {
	if testing.Short() {
		return 2
	}
	return 12
}

// copyDir copies the directory of a member whose process is stopped meanwhile, so that the
// copy is what a snapshot of the volume would be.
func (g *processGroup) copyDir(i int) string {
	g.t.Helper()
	p, to := g.members[i], filepath.Join(g.t.TempDir(), "copy")
	p.stop()
	defer p.resume()
	if err := os.CopyFS(to, os.DirFS(g.configs[i].Dir)); err != nil {
		g.t.Fatal(err)
	}
	return to
}

// cycle has a process lock and unlock so often. Its outcomes come through its own log.
func cycle(p *process, lock string, times int) {
	p.t.Helper()
	for range times {
		p.must("lock", lock)
		p.must("unlock", lock)
	}
}

// openCopy starts another process of a member on a directory, which must not become one.
func (g *processGroup) openCopy(i int, dir, bind string, within time.Duration) error {
	g.t.Helper()
	p := launch(g.t, bind)
	defer p.kill()
	config := g.configs[i]
	config.Dir, config.Timeout = dir, within
	_, err := p.do(order{Do: "open", Config: config})
	if err == nil {
		g.t.Fatal("Open of the copy returned a member")
	}
	return err
}

// openRefusedCopy is openCopy of a copy that all members refuse while the original runs. Open tries again until its time is over, and then says
// why it was refused: on a busy machine the first answer comes late.
func (g *processGroup) openRefusedCopy(i int) error {
	g.t.Helper()
	dir := g.copyDir(i)
	for within := time.Second; ; within *= 2 {
		if err := g.openCopy(i, dir, "127.0.0.1:0", within); isRefusedCopy(err) || within > 10*time.Second {
			return err
		}
	}
}

func isRefusedCopy(err error) bool {
	return strings.Contains(err.Error(), "still in contact") || strings.Contains(err.Error(), "copy of the data directory")
}

// A copy of a running member's directory, started at another address, is refused by all
// members. The original keeps its lock and its sessions, and its next start is accepted.
func TestCopy_RefusedWhileOriginalRuns(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	for round := range rounds() {
		i := round % 3
		original, other := g.members[i], g.members[(i+1)%3]
		fence := original.must("lock", "held")
		before, err := original.do(order{Do: "sessions"})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.openRefusedCopy(i); !isRefusedCopy(err) {
			t.Errorf("round %d: the copy is refused with: %v", round, err)
		}
		if f, err := original.ask("fence", "held"); err != nil || f != fence {
			t.Fatalf("round %d: the original's fence is %v, %v; want %v", round, f, err, fence)
		}
		if f, err := other.ask("try", "held"); !errors.Is(err, conclave.ErrLocked) {
			t.Fatalf("round %d: another member got the lock: %v, %v", round, f, err)
		}
		after, err := original.do(order{Do: "sessions"})
		if err != nil || len(after.Sessions) != len(before.Sessions) || after.Sessions[0] != before.Sessions[0] {
			t.Fatalf("round %d: the original's sessions are %v, %v; were %v", round, after.Sessions, err, before.Sessions)
		}
		if round%4 == 3 { // a refused start consumes nothing
			original.kill()
			g.restart(i)
			original = g.members[i]
			original.must("lock", "held")
		}
		original.must("unlock", "held")
	}
}

// A copy that was taken while the member ran, restored after a kill: the member has
// forgotten entries that it acknowledged, and is refused at once. With its latest directory
// it goes on.
func TestRollback_RefusedWithinOneStart(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	for round := range rounds() {
		i := (g.leader() + 1 + round%2) % 3
		older := g.copyDir(i)
		cycle(g.members[i], "rolled", 10)
		g.members[i].kill()
		began := time.Now()
		err := g.openCopy(i, older, g.members[i].addr, 30*time.Second)
		if !errors.Is(err, conclave.ErrCorrupt) || !strings.Contains(err.Error(), "forgot acknowledged entries") {
			t.Fatalf("round %d: the copy is refused with: %v", round, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("round %d: it was refused after %v", round, took)
		}
		g.restart(i)
		cycle(g.members[i], "rolled", 1)
	}
}

// A directory from before the member's last start is refused by the voters, which have
// seen its boot counter. A majority of them stops its process; the latest directory goes on.
func TestRollback_EarlierStart(t *testing.T) {
	t.Parallel()
	g := processesOf(t, 3, 10*time.Second)
	for range min(rounds(), 4) {
		i := (g.leader() + 1) % 3
		older := g.copyDir(i)
		for range 2 { // the copy's start is the next one after that of its process
			g.members[i].kill()
			g.restart(i)
			cycle(g.members[i], "rolled", 1)
			g.awaitConnected(i) // else a voter may not have seen this start
		}
		g.members[i].kill()
		err := g.openCopy(i, older, g.members[i].addr, 30*time.Second)
		if !errors.Is(err, conclave.ErrCorrupt) || !strings.Contains(err.Error(), "has seen a later start") {
			t.Fatalf("the copy is refused with: %v", err)
		}
		if strings.Contains(err.Error(), "forgot") {
			t.Errorf("its boot counter is taken for forgotten entries: %v", err)
		}
		g.restart(i)
		cycle(g.members[i], "rolled", 1)
	}
}
