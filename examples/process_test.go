package examples

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a line or an end is waited for.
const patience = 30 * time.Second

var programs string // the folder of the compiled ones

// All are compiled at once, which is most of what the tests take; without what
// debuggers need it takes less.
func TestMain(m *testing.M) {
	status, err := build(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func build(run func() int) (status int, err error) {
	if programs, err = os.MkdirTemp("", "conclave-examples-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(programs) // temporary: what it leaves the system removes
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", programs, "./...").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	return run(), nil
}

// process is a program that runs.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.Writer     // its input, which ends with it
	read int           // how many lines expect has gone through
	over chan struct{} // closed when it has ended and everything is read
	err  error         // of its end; valid once over is closed

	mu      sync.Mutex
	lines   []string      // guarded by mu; of both outputs
	printed chan struct{} // guarded by mu; closed when there is a new line, and at the end
}

// start runs an example. What of it is still there when the test ends is killed.
// name is for messages, env is added to the environment.
func start(t *testing.T, name string, env []string, example string, args ...string) *process {
	t.Helper()
	p := &process{
		t:       t,
		name:    name,
		cmd:     exec.Command(filepath.Join(programs, example), args...),
		over:    make(chan struct{}),
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
	go p.listen(out)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, strings.Join(p.text(), "\n"))
		}
	})
	return p
}

func (p *process) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		p.tell(func() { p.lines = append(p.lines, lines.Text()) })
	}
	close(p.over)
	p.tell(func() {})
}

func (p *process) tell(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.printed)
	p.printed = make(chan struct{})
}

// text is what was printed so far.
func (p *process) text() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[:len(p.lines):len(p.lines)]
}

// expect waits for a line that matches, after the one that was expected last,
// and returns what the pattern's groups matched.
func (p *process) expect(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	late := time.NewTimer(patience)
	defer late.Stop()
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
		if p.ended() {
			p.t.Fatalf("%s ended (%v) and did not print %q", p.name, p.err, pattern)
		}
		select {
		case <-printed:
		case <-late.C:
			p.t.Fatalf("%s did not print %q in %v", p.name, pattern, patience)
		}
	}
}

// ended is true once everything was read, so what is not there will not come.
func (p *process) ended() bool {
	select {
	case <-p.over:
		return p.read == len(p.text())
	default:
		return false
	}
}

// enter types a line.
func (p *process) enter(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// signal sends a signal.
func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// kill ends it as kill -9 does and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it fails only if the process has ended
	<-p.over
}

// wait waits for the end and returns the exit status; -1 after a signal.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.over:
	case <-time.After(patience):
		p.t.Fatalf("%s did not end in %v", p.name, patience)
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		p.t.Fatalf("%s: %v", p.name, p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}
