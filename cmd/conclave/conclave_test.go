package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// runVariable makes this test binary the program. Signals need a process.
const runVariable = "CONCLAVE_TEST_RUN"

// killTimeVariable sets killTime in such a process.
const killTimeVariable = "CONCLAVE_TEST_KILL_TIME"

func TestMain(m *testing.M) {
	if os.Getenv(runVariable) != "" {
		if text := os.Getenv(killTimeVariable); text != "" {
			var err error
			if killTime, err = time.ParseDuration(text); err != nil {
				panic(err)
			}
		}
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	// nohup and shells start processes with signals ignored, which the processes of the tests would
	// inherit.
	for _, ignored := range forwarded {
		if signal.Ignored(ignored) {
			signal.Notify(make(chan os.Signal, 1), ignored)
		}
	}
	// Parallel tests wait for timeouts rather than compute, so it exceeds the default, the number of processors. -parallel overrides it.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// patience bounds each wait: only a hang reaches it, also on a slow and busy machine.
const patience = 5 * time.Minute

// member is a group of one, and the address for --addr.
func member(t *testing.T, dir string) *conclave.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// The group learns of clients after 10 heartbeats.
	n, err := conclave.Open(ctx, &conclave.Config{Name: "anna", Dir: dir, HeartbeatInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Log(err)
		}
	})
	must(t, n, "status") // waits until the group records labels and times as well
	return n
}

// result is what a command printed, and its exit code.
type result struct {
	out, err string
	code     int
}

// conclaveAt runs a command for the group of a member.
func conclaveAt(n *conclave.Node, args ...string) result {
	var out, errs bytes.Buffer
	code := run(append([]string{"--addr", n.Addr()}, args...), strings.NewReader("from standard input"), &out, &errs)
	return result{out.String(), errs.String(), code}
}

// must is conclaveAt for a command that succeeds.
func must(t *testing.T, n *conclave.Node, args ...string) string {
	t.Helper()
	r := conclaveAt(n, args...)
	if r.code != 0 || r.err != "" {
		t.Fatalf("conclave %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// want checks the exit code of a command, and what it reports.
func want(t *testing.T, r result, code int, contains string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.err, contains) {
		t.Errorf("exit code %d, want %d with %q:\n%s%s", r.code, code, contains, r.out, r.err)
	}
}

// decoded is the JSON that a command printed.
func decoded[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// process is the program in a process of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // of standard output and standard error

	mu   sync.Mutex
	text strings.Builder // guarded by mu; all lines so far
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startBy(t, nil, args...)
}

// startBy is start by another program, which executes its last arguments.
func startBy(t *testing.T, other []string, args ...string) *process {
	t.Helper()
	return startCommand(t, nil, slices.Concat(other, []string{os.Args[0]}, args))
}

// startWith is start with a standard input.
func startWith(t *testing.T, stdin *os.File, args ...string) *process {
	t.Helper()
	return startCommand(t, stdin, append([]string{os.Args[0]}, args...))
}

func startCommand(t *testing.T, stdin *os.File, argv []string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(argv[0], argv[1:]...), lines: make(chan string, 1000)}
	if stdin != nil {
		p.cmd.Stdin = stdin
	}
	p.cmd.Env = append(os.Environ(), runVariable+"=1")
	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.text, s.Text())
			p.mu.Unlock()
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		_ = w.Close()
	})
	return p
}

// printed returns what the process has printed so far.
func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// kill ends the process as kill -9 does, and waits for its end.
func (p *process) kill() {
	p.t.Helper()
	must0(p.t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

// line blocks until the process prints a line that contains a text, and returns it. The lines before it are not looked at again: where two goroutines
// of the process print, use inAnyOrder.
func (p *process) line(contains string) string {
	p.t.Helper()
	return p.inAnyOrder(contains)
}

// inAnyOrder blocks until the process has printed a line for each text, which contains it, and returns the last.
func (p *process) inAnyOrder(contains ...string) string {
	p.t.Helper()
	late := time.After(patience)
	var before []string
	for {
		select {
		case l, ok := <-p.lines:
			i := slices.IndexFunc(contains, func(text string) bool { return strings.Contains(l, text) })
			if i >= 0 && ok {
				if contains = slices.Delete(slices.Clone(contains), i, i+1); len(contains) == 0 {
					return l
				}
			}
			if before = append(before, l); ok {
				continue
			}
		case <-late:
		}
		p.t.Fatalf("no line with %q in:\n%s", contains, strings.Join(before, "\n"))
	}
}

// wait blocks until the process has ended, and returns its exit code.
func (p *process) wait() int {
	p.t.Helper()
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// within is a context that outlives what a test waits for.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must0(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
