//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// logFunc prints an actor and what it does, with the time since the start, or
// the narrator's text if actor is empty.
type logFunc func(actor, format string, args ...any)

func newLog(w io.Writer) logFunc {
	var mu sync.Mutex // one line at a time
	start := time.Now()
	return func(actor, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		text := fmt.Sprintf(format, args...)
		if actor == "" {
			fmt.Fprintf(w, "\n%s\n\n", text)
			return
		}
		fmt.Fprintf(w, "%7.2f s   %-8s %s\n", time.Since(start).Seconds(), actor, text)
	}
}

// actor is the process of a worker.
type actor struct {
	name  string
	logf  logFunc
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // its output; closed when the process ends
}

func newActor(logf logFunc, name string, args ...string) (*actor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &actor{name: name, logf: logf, lines: make(chan string, 64)}
	a.cmd = exec.Command(self, append([]string{"-worker", name}, args...)...)
	a.cmd.Stderr = os.Stderr
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(a.lines)
		for output := bufio.NewScanner(out); output.Scan(); {
			logf(name, "%s", output.Text())
			a.lines <- output.Text()
		}
	}()
	return a, nil
}

// order makes the worker follow an order, and waits until it prints a line that
// begins with until.
func (a *actor) order(ctx context.Context, order, until string) error {
	if _, err := io.WriteString(a.in, order+"\n"); err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	_, err := a.read(ctx, until)
	return err
}

// read waits until the worker prints a line with that prefix, and returns the
// rest of the line.
func (a *actor) read(ctx context.Context, prefix string) (rest string, err error) {
	for {
		select {
		case line, ok := <-a.lines:
			if !ok {
				return "", fmt.Errorf("%s ended before it printed %q", a.name, prefix)
			}
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				return rest, nil
			}
		case <-ctx.Done():
			return "", fmt.Errorf("wait for %s to print %q: %w", a.name, prefix, ctx.Err())
		}
	}
}

// pause stops the process, as a debugger, a suspended machine or a long garbage collection would. It waits until the
// system reports that the process has stopped: kill returns before.
func (a *actor) pause() error {
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(a.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("%s: wait until it has stopped: %w", a.name, err)
		case !status.Stopped():
			return fmt.Errorf("%s ended before it stopped", a.name)
		default:
			a.logf(a.name, "is PAUSED (SIGSTOP to process %d)", a.cmd.Process.Pid)
			return nil
		}
	}
}

func (a *actor) resume() error {
	a.logf(a.name, "is resumed (SIGCONT)")
	return a.cmd.Process.Signal(syscall.SIGCONT)
}

// cast is all workers.
type cast []*actor

// end ends the workers and returns their failures. A worker ends gracefully at
// the end of its input; after an error, when one may be paused, end kills them.
func (c cast) end(graceful bool) error {
	for _, a := range c {
		_ = a.in.Close() // fails only if the worker has ended
		if !graceful {
			_ = a.cmd.Process.Kill() // likewise
		}
	}
	var errs []error
	for _, a := range c {
		for range a.lines { // Wait requires that all output has been read
		}
		if err := a.cmd.Wait(); err != nil && graceful {
			errs = append(errs, fmt.Errorf("%s: %w", a.name, err))
		}
	}
	return errors.Join(errs...)
}
