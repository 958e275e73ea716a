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
	"time"
)

// teller prints who says or does what, with the time since the beginning. Without
// a who it is the narrator.
type teller func(who, format string, args ...any)

func newTeller(w io.Writer) teller {
	var mu sync.Mutex // one line at a time
	began := time.Now()
	return func(who, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		text := fmt.Sprintf(format, args...)
		if who == "" {
			fmt.Fprintf(w, "\n%s\n\n", text)
			return
		}
		fmt.Fprintf(w, "%7.2f s   %-7s %s\n", time.Since(began).Seconds(), who, text)
	}
}

// actor is a worker's process, as the director has it.
type actor struct {
	name  string
	say   teller
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // what it says; closed at its end
}

func newActor(say teller, name string, args ...string) (*actor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &actor{name: name, say: say, lines: make(chan string, 64)}
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
		for said := bufio.NewScanner(out); said.Scan(); {
			say(name, "%s", said.Text())
			a.lines <- said.Text()
		}
	}()
	return a, nil
}

// begin makes the worker work.
func (a *actor) begin() error {
	_, err := io.WriteString(a.in, "work\n")
	return err
}

// reach waits until the worker says something that begins so.
func (a *actor) reach(ctx context.Context, beginning string) error {
	_, err := a.hear(ctx, beginning)
	return err
}

// hear is reach, and returns the rest of what it says. Each second without a
// word it tells the audience what it waits for.
func (a *actor) hear(ctx context.Context, beginning string) (rest string, err error) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case line, ok := <-a.lines:
			if !ok {
				return "", fmt.Errorf("%s ended before %q", a.name, beginning)
			}
			if rest, ok := strings.CutPrefix(line, beginning); ok {
				return rest, nil
			}
		case <-second.C:
			a.say("…", "waiting for %s", a.name)
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for %s to say %q: %w", a.name, beginning, ctx.Err())
		}
	}
}

// cast is all workers.
type cast []*actor

// leave ends the workers and returns what became of them. In good order each
// ends at the end of its input; otherwise, when one may hang in its pause, all
// are killed.
func (c cast) leave(inGoodOrder bool) error {
	for _, a := range c {
		_ = a.in.Close() // fails only if the worker has ended
		if !inGoodOrder {
			_ = a.cmd.Process.Kill() // as well
		}
	}
	var errs []error
	for _, a := range c {
		for range a.lines { // to the end, which Wait must not come before
		}
		if err := a.cmd.Wait(); err != nil && inGoodOrder {
			errs = append(errs, fmt.Errorf("%s: %w", a.name, err))
		}
	}
	return errors.Join(errs...)
}
