// Ratelimit runs one of several processes whose workers share a limit on
// concurrent jobs, as for a backend that bears only so many. Start three, each
// in a terminal of its own:
//
//	go run ./examples/ratelimit -dir /tmp/ratelimit/1 -bind 127.0.0.1:7201 -join 127.0.0.1:7202,127.0.0.1:7203 -expect 3 -name anna
//	go run ./examples/ratelimit -dir /tmp/ratelimit/2 -bind 127.0.0.1:7202 -join 127.0.0.1:7201,127.0.0.1:7203 -expect 3 -name ben
//	go run ./examples/ratelimit -dir /tmp/ratelimit/3 -bind 127.0.0.1:7203 -join 127.0.0.1:7201,127.0.0.1:7202 -expect 3 -name clara
//
// Each has 3 workers, and at most 4 of the 9 work at a time. Each process prints
// the command that kills it (kill -9 and its process ID). Kill one while its
// workers work: the others share the remaining permits until the session of the
// killed process expires, after its TTL of 10 seconds; then they have all 4.
// Press Ctrl-C instead: its permits are free at once. A second Ctrl-C ends it
// without the graceful shutdown.
//
// With -journal the workers of all processes append the begin and the end of
// each job to one file.
//
// main.go opens and closes the member, worker.go shares the permits.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/conclave-go/conclave"
)

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // a second signal ends the process
		err = run(ctx, o, os.Stdout)
	}
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "ratelimit:", err)
	if errors.Is(err, conclave.ErrInvalid) || errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

type options struct {
	cfg     conclave.Config
	limit   int
	workers int
	work    time.Duration
	journal string
}

var errUsage = errors.New("run it with -help for all flags")

func parse(args []string) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("ratelimit", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), `Ratelimit runs one of several processes that share a limit on concurrent jobs.
"go doc ./examples/ratelimit" prints the commands that start a group of three.

Flags:`)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.cfg.Dir, "dir", "", "data `directory` of this member alone; created if missing (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&join, "join", "", "comma-separated `addresses` of other members")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of this many `members` (default: 1 without -join; with -join, form none)")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this process (required)")
	flags.DurationVar(&o.cfg.SessionTTL, "ttl", 10*time.Second, "session TTL, after which a crashed process loses its permits; 1s to 24h")
	flags.IntVar(&o.limit, "limit", 4, "concurrent `jobs` of all processes together; the same for each of them")
	flags.IntVar(&o.workers, "workers", 3, "number of `workers` of this process")
	flags.DurationVar(&o.work, "work", 2*time.Second, "duration of a job")
	flags.StringVar(&o.journal, "journal", "", "`file`, shared by all processes, to which workers append what they do")
	_ = flags.Parse(args) // exits on -help and on an error
	if join != "" {
		o.cfg.Join = strings.Split(join, ",")
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: %w", flags.Arg(0), errUsage)
	case o.cfg.Dir == "":
		return o, fmt.Errorf("missing -dir, the data directory of this member: %w", errUsage)
	case o.cfg.Name == "":
		return o, fmt.Errorf("missing -name, the name of this process: %w", errUsage)
	case o.limit < 1:
		return o, fmt.Errorf("invalid -limit: want at least 1, got %d: %w", o.limit, errUsage)
	case o.workers < 1:
		return o, fmt.Errorf("invalid -workers: want at least 1, got %d: %w", o.workers, errUsage)
	case o.work <= 0:
		return o, fmt.Errorf("invalid -work: want more than 0s, got %v: %w", o.work, errUsage)
	}
	return o, nil // Open validates the rest and reports all faults at once
}

// run opens the member, runs the workers and closes the member. It returns nil
// if ctx ended it.
func run(ctx context.Context, o options, w io.Writer) error {
	logf := newLog(w)
	journal, err := openJournal(o.journal)
	if err != nil {
		return err
	}
	defer journal.close()
	l, err := net.Listen("tcp", o.cfg.Bind)
	if err != nil {
		return err
	}
	o.cfg.Listener = l // to print the port before the group has formed
	logf("listening on %s; waiting for a majority of the group", l.Addr())
	node, err := conclave.Open(ctx, &o.cfg)
	if err != nil && ctx.Err() != nil {
		return nil // interrupted before the member was open
	}
	if err != nil {
		return err
	}
	logf("%s is in the group; to crash it, run: %s", o.cfg.Name, killCommand())
	err = runWorkers(ctx, node, o, journal, logf)
	shutDown(node, logf)
	return err
}

// shutDown closes the node gracefully. The context of run may be done, so Close
// gets one of its own.
func shutDown(node *conclave.Node, logf logFunc) {
	logf("shutting down gracefully; interrupt again to stop at once")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := node.Close(ctx); err != nil {
		logf("the graceful shutdown is incomplete: %v", err)
	}
	logf("closed")
}

// killCommand returns the command that ends this process without a graceful
// shutdown.
func killCommand() string {
	if runtime.GOOS == "windows" {
		return fmt.Sprintf("taskkill /F /PID %d", os.Getpid())
	}
	return fmt.Sprintf("kill -9 %d", os.Getpid())
}
