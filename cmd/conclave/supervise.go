package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// supervise runs a command until it ends. It gets the signals that this process gets. When the lease is lost, it is
// asked to end, and killed after the grace. code is its exit code. If ctx is done before, or the lease lost, the command is not run.
func (p *program) supervise(ctx context.Context, argv, environment []string, l lease, grace time.Duration) (code int, wasLost bool, err error) {
	// Linux sends the signal of a parent's death when the thread that started the child has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	child := exec.Command(argv[0], argv[1:]...)
	child.Env, child.Stdin, child.Stdout, child.Stderr = environment, p.stdin, p.stdout, p.stderr
	// A grandchild that keeps a pipe of this process open must not keep the lock.
	child.WaitDelay = time.Second
	group := isolate(child)
	if err := p.takeSignals(ctx); err != nil {
		return 0, false, withCode(codeOf(err), fmt.Errorf("conclave: %w", err)) // it came after the grant
	}
	defer p.returnSignals()
	stops := make(chan os.Signal, 1)
	if group { // otherwise the terminal stops both
		notify(stops, suspending...)
		defer signal.Stop(stops)
	}
	if !l.held() { // this process was stopped after the grant
		return 0, true, nil
	}
	if err := child.Start(); err != nil {
		return 0, false, withCode(cannotRun(err), fmt.Errorf("conclave: %w", err))
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	lost := l.lost
	var kill <-chan time.Time
	var left []descendant
	for {
		select {
		case err := <-ended:
			killLeft(child, group && wasLost, left)
			code, err := exitCode(child, err)
			return code, wasLost, err
		case s := <-p.signals:
			// A terminal sends the signals of its keys to all processes of its group.
			if number, ok := s.(syscall.Signal); ok && (group || number != syscall.SIGINT && number != syscall.SIGQUIT) {
				_ = signalTo(child, group, number) // fails if it has ended
			}
		case <-stops:
			if !l.suspend(child) {
				lost, wasLost = nil, true
			}
		case <-lost:
			lost, wasLost = nil, true
			left = descendants(child.Process.Pid)
			_ = signalTo(child, group, syscall.SIGTERM)
			p.say("conclave: the lease is lost: the command gets SIGTERM now, and SIGKILL in %v\n", grace)
			timer := time.NewTimer(grace)
			defer timer.Stop()
			kill = timer.C
		case <-kill:
			left = append(left, descendants(child.Process.Pid)...)
			_ = signalTo(child, group, syscall.SIGKILL)
		}
	}
}

// descendant is a process that the child has started, distinguished by its start from a later one with the same ID.
type descendant struct {
	pid   int
	began string
}

// killLeft kills what a child has left behind: its group and, where they are known, its descendants.
func killLeft(child *exec.Cmd, group bool, left []descendant) {
	if group {
		_ = signalTo(child, group, syscall.SIGKILL)
	}
	for _, d := range left {
		d.kill()
	}
}

// suspend stops the child and this process: a command that runs while this process is stopped would outlive the lease. When
// this process is resumed, the child is too, or killed if the lease is not held any more.
func (l lease) suspend(child *exec.Cmd) (held bool) {
	suspend(child)
	held = l.held()
	number := resuming
	if !held {
		number = syscall.SIGKILL
	}
	_ = signalTo(child, true, number)
	return held
}

// say prints a message without waiting for its reader: a pipe that is full must not keep the command of a lost lease alive.
func (p *program) say(format string, args ...any) {
	p.saying.Go(func() { fmt.Fprintf(p.stderr, format, args...) })
}

// messageGrace is how long this process waits for the reader of its messages.
const messageGrace = 5 * time.Second

// said waits until what say prints has been taken, for a while: a reader that has stopped must not keep this
// process.
func (p *program) said() {
	taken := make(chan struct{})
	go func() {
		p.saying.Wait()
		close(taken)
	}()
	timer := time.NewTimer(messageGrace)
	defer timer.Stop()
	select {
	case <-taken:
	case <-timer.C:
	}
}

// tell prints a message and waits for its reader, for a while.
func (p *program) tell(text string) {
	p.say("%s\n", text)
	p.said()
}

// survivePipes has a write to a pipe without a reader fail, also to standard output and standard error. Else it ends this
// process, and with it the care for the command. The command does not inherit that.
func (p *program) survivePipes() { signal.Notify(p.broken, syscall.SIGPIPE) }

func cannotRun(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNoCommand
	}
	return exitCannotRun
}

// exitCode is the exit code of a command that has ended, as a shell reports it.
func exitCode(child *exec.Cmd, err error) (int, error) {
	state := child.ProcessState
	if state == nil {
		return 0, err
	}
	if code := state.ExitCode(); code >= 0 {
		return code, nil
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exitFailed, nil
}
