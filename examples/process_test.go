package examples

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// waitTimeout bounds each wait for a line or for the end of a process. Only a hang reaches it, also on a slow and busy machine.
const waitTimeout = 3 * time.Minute

var programs string // the folder of the compiled examples

// parallelTests is the number of tests that run at a time. They wait for timeouts
// rather than compute, so it exceeds the default, the number of processors.
const parallelTests = "10"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", parallelTests); err != nil { // -parallel overrides it
		panic(err)
	}
	// A shell starts background jobs with SIGINT ignored, which the examples would inherit.
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	status, err := build(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// build compiles all examples at once, without symbols, since linking takes most
// of the time of these tests.
func build(run func() int) (status int, err error) {
	if err := readSources(); err != nil {
		return 0, err
	}
	if programs, err = os.MkdirTemp("", "conclave-examples-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(programs) // a leftover is in the system's temporary folder
	// The separator makes it a folder for go build, also for a single program.
	out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", programs+string(filepath.Separator), "./...").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("build the examples: %w\n%s", err, out)
	}
	return run(), nil
}

// readSources reads the folders of this module. go test reuses a result until a
// file changes that the test reads, and does not see what go build reads.
func readSources() error {
	return filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != ".." {
			return fs.SkipDir
		}
		return err
	})
}

// process is a running example.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.Writer
	read int           // number of lines that expect has consumed
	done chan struct{} // closed when the process has ended and all output is read
	err  error         // of Wait; valid once done is closed

	mu      sync.Mutex
	lines   []string      // guarded by mu; of stdout and stderr
	printed chan struct{} // guarded by mu; closed on each new line and at the end
}

// start runs an example and kills it when the test ends. name is for failure
// messages; env is added to the environment.
func start(t *testing.T, name string, env []string, example string, args ...string) *process {
	t.Helper()
	p := &process{
		t:       t,
		name:    name,
		cmd:     exec.Command(filepath.Join(programs, example), args...),
		done:    make(chan struct{}),
		printed: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), env...)
	out, in := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = in, in
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		_ = in.Close() // never fails
	}()
	go p.readOutput(out)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, strings.Join(p.text(), "\n"))
		}
	})
	return p
}

func (p *process) readOutput(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		p.update(func() { p.lines = append(p.lines, lines.Text()) })
	}
	close(p.done)
	p.update(func() {})
}

func (p *process) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.printed)
	p.printed = make(chan struct{})
}

// text returns the output so far.
func (p *process) text() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[:len(p.lines):len(p.lines)]
}

// expect waits for a line that matches, after the line that was expected last,
// and returns the submatches.
func (p *process) expect(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	timeout := time.NewTimer(waitTimeout)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		lines, printed := p.lines, p.printed
		p.mu.Unlock()
		for ; p.read < len(lines); p.read++ {
			if match := re.FindStringSubmatch(lines[p.read]); match != nil {
				p.read++
				return match[1:]
			}
		}
		if p.drained() {
			p.t.Fatalf("%s ended (%v) before it printed %q", p.name, p.err, pattern)
		}
		select {
		case <-printed:
		case <-timeout.C:
			p.t.Fatalf("%s did not print %q in %v", p.name, pattern, waitTimeout)
		}
	}
}

// drained reports whether the process has ended and expect has consumed all of
// its output.
func (p *process) drained() bool {
	select {
	case <-p.done:
		return p.read == len(p.text())
	default:
		return false
	}
}

// enter writes a line to the input.
func (p *process) enter(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// kill ends the process as kill -9 does and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if the process has ended
	<-p.done
}

// wait waits for the end and returns the exit status; -1 after a signal.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(waitTimeout):
		p.t.Fatalf("%s did not end in %v", p.name, waitTimeout)
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		p.t.Fatalf("%s: %v", p.name, p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// expectKillCommand checks that the process prints its own ID in the command that
// kills it.
func (p *process) expectKillCommand() {
	p.t.Helper()
	if pid := p.expect(`to crash .*, run: .* (\d+)$`)[0]; pid != fmt.Sprint(p.cmd.Process.Pid) {
		p.t.Errorf("%s prints process ID %s, want %d", p.name, pid, p.cmd.Process.Pid)
	}
}

// tempEnv makes dir the process's folder for temporary files, on each system.
func tempEnv(dir string) []string { return []string{"TMPDIR=" + dir, "TMP=" + dir, "TEMP=" + dir} }
