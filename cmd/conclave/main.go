// Conclave operates a group from a terminal, runs programs under its locks, and runs members for
// programs that are not written in Go.
//
//	conclave agent --dir /var/lib/conclave …    run a member
//	conclave lock nightly -- ./job.sh           run a command while holding a lock
//	conclave explain nightly                    which process holds it, and which ones wait
//
// "conclave help" lists the commands; docs/CLI.md describes them. Except for agent and the commands
// that work on directories, it is a client of the group (conclave.Dial), not a member.
//
// To read: root.go has the tree of commands, connect.go, tls.go and certificates.go the connection, output.go what is
// printed and exit.go the exit codes. lock.go and supervise.go run a command under a lock; agent.go and
// agent_http.go run a member.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run carries out one command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	signals := make(chan os.Signal, 16)
	notify(signals, forwarded...)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr, signals: make(chan os.Signal, 16), broken: make(chan os.Signal, 1)}
	defer signal.Stop(p.broken)
	root := p.root()
	if cmd, _, err := root.Find(args); err == nil && cmd.Annotations[reloads] != "" {
		p.hangups = make(chan struct{}, 1)
		signal.Notify(signals, syscall.SIGHUP) // also if it was ignored: it does not end this process
	}
	done := make(chan struct{})
	defer close(done)
	go p.relay(signals, cancel, done)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	return p.exit(command, err)
}

// notify is signal.Notify, except for signals that the parent has had ignored, as nohup(1) does and a shell
// for its background jobs: signal.Notify would end that, for this process and its child.
func notify(c chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// interrupted is the cause of a context that a signal has ended.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return "interrupted by a signal: " + i.signal.String() }

// relay cancels the command's context at the first signal that asks it to end. While a child runs, it gets
// the signals instead.
func (p *program) relay(signals <-chan os.Signal, cancel context.CancelCauseFunc, done <-chan struct{}) {
	for {
		select {
		case s := <-signals:
			p.deliver(s, cancel)
		case <-done:
			return
		}
	}
}

func (p *program) deliver(s os.Signal, cancel context.CancelCauseFunc) {
	number, ok := s.(syscall.Signal)
	if number == syscall.SIGHUP && p.hangups != nil {
		select {
		case p.hangups <- struct{}{}:
		default: // the files are read after this signal too
		}
		return
	}
	ending := ok && ends(number)
	p.delivering.Lock()
	defer p.delivering.Unlock()
	if p.supervising {
		if ending && number != syscall.SIGHUP { // with which many daemons reload their configuration
			p.stopping = true
		}
		select {
		case p.signals <- s:
		default: // 16 signals are waiting for the child already
		}
		return
	}
	if ending {
		signal.Reset(s) // the second one ends the process at once
		cancel(interrupted{number})
	}
}

// takeSignals has the signals from now on delivered to a child. The error is that of an earlier signal, which has ended ctx:
// each signal reaches one of the two.
func (p *program) takeSignals(ctx context.Context) error {
	p.delivering.Lock()
	defer p.delivering.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.supervising = true
	return nil
}

// returnSignals undoes takeSignals. A signal that the child has not got is none for the next one.
func (p *program) returnSignals() {
	p.delivering.Lock()
	defer p.delivering.Unlock()
	p.supervising = false
	for len(p.signals) > 0 {
		<-p.signals
	}
}

func (p *program) isStopping() bool {
	p.delivering.Lock()
	defer p.delivering.Unlock()
	return p.stopping
}
