package consultest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// build compiles the program, which knows HashiCorp's client and nothing of conclave.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "worker")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./worker").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// installed returns a program of the PATH, or installs it for the test. Where that is not possible the test is
// skipped.
func installed(t *testing.T, name, module string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	dir := t.TempDir()
	if err := goCommand(t, dir, "install", module); err != nil {
		t.Skipf("SKIPPED: go install %s fails, so it was not tested: %v", module, err)
	}
	return filepath.Join(dir, name)
}

// goCommand runs the go command in a folder, which gets the programs that it installs. The error has what it prints.
func goCommand(t *testing.T, dir string, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience) // it may have to download modules
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// process is a running program.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.Closer
	lines  chan string // of its output; closed at its end
	stderr bytes.Buffer
}

func launch(t *testing.T, program, addr string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	p := &process{t: t, cmd: exec.CommandContext(ctx, program, args...), lines: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), "CONSUL_HTTP_ADDR="+addr)
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	must(t, err)
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go func() {
		defer close(p.lines)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			p.lines <- in.Text()
		}
	}()
	t.Cleanup(func() { cancel(); _ = p.cmd.Wait() }) // an error if the test has waited
	return p
}

// await waits for a line of the output.
func (p *process) await(want string) {
	p.t.Helper()
	timeout := time.After(2 * patience)
	for {
		select {
		case line, ok := <-p.lines:
			if line == want {
				return
			}
			if !ok {
				p.t.Fatalf("the program ended without %q:\n%s", want, p.stderr.String())
			}
		case <-timeout:
			p.t.Fatalf("the program does not print %q", want)
		}
	}
}

// finish waits for the end, which must be a success.
func (p *process) finish() {
	p.t.Helper()
	p.await("done")
	for range p.lines {
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%v\n%s", err, p.stderr.String())
	}
}

// A leader that is killed with SIGKILL is followed by the next one after its TTL; six programs, two for
// each member, never see a second leader, nor more workers than the limit.
func TestProgram_Unchanged(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the TTL of a killed leader, ten seconds")
	}
	a := start(t, 3)
	program := build(t)
	killed := launch(t, program, a.addr(0), "-name", "killed", "-hold")
	killed.await("leading")
	if pair := get(t, a.client(1), "service/worker/leader"); string(pair.Value) != "killed" || pair.Session == "" {
		t.Errorf("leader %+v", pair)
	}
	var others []*process
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		others = append(others, launch(t, program, a.addr(i%3), "-name", name))
	}
	must(t, killed.cmd.Process.Kill())
	for _, p := range others {
		p.finish()
	}
	if got := string(get(t, a.client(0), "service/worker/terms").Value); got != "12" {
		t.Errorf("%s terms were counted, want 12", got)
	}
	if p := get(t, a.client(1), "service/worker/leader"); p.Session != "" {
		t.Errorf("the last leader has resigned, and the key is %+v", p)
	}
}

func TestProgram_LeaderResigns(t *testing.T) {
	a := start(t, 2)
	program := build(t)
	first := launch(t, program, a.addr(0), "-name", "first", "-hold", "-terms", "1", "-jobs", "0")
	first.await("leading")
	second := launch(t, program, a.addr(1), "-name", "second", "-terms", "1", "-jobs", "1")
	must(t, first.stdin.Close())
	first.finish()
	second.finish()
	if got := string(get(t, a.client(0), "service/worker/terms").Value); got != "2" {
		t.Errorf("%s terms were counted, want 2", got)
	}
}
