// Exclusivejob runs one of several processes that share a periodic job, such as
// a nightly report: in each period one of them runs it. Start three, each in a
// terminal of its own:
//
//	go run ./examples/exclusivejob -dir /tmp/job/1 -bind 127.0.0.1:7401 -join 127.0.0.1:7402,127.0.0.1:7403 -expect 3 -name anna -store /tmp/job/report.json
//	go run ./examples/exclusivejob -dir /tmp/job/2 -bind 127.0.0.1:7402 -join 127.0.0.1:7401,127.0.0.1:7403 -expect 3 -name ben -store /tmp/job/report.json
//	go run ./examples/exclusivejob -dir /tmp/job/3 -bind 127.0.0.1:7403 -join 127.0.0.1:7401,127.0.0.1:7402 -expect 3 -name clara -store /tmp/job/report.json
//
// A conclave.Job lets one of them run at a time, and records which periods are
// done, so that the next process does not repeat them. The process
// that runs the job prints the command that kills it (kill -9 and its process
// ID). Run the command while the job runs: when the session of the killed process
// expires, after its TTL of 10 seconds, another process runs the job for the same
// period with a larger fence.
//
// Or pause the process: kill -STOP and its process ID, and kill -CONT when
// another process has run the job. It notices that it has lost the run; if it
// notices too late, the store refuses its result by the fence.
//
// It runs on Linux, macOS, the BSDs, illumos and Windows; elsewhere the store has
// no file lock and refuses each result. On Windows the printed command is
// taskkill /F, and there is no -STOP: suspend the process in Resource Monitor.
//
// main.go opens and closes the member, job.go runs the job of each period,
// store.go is the resource that checks the fence, flock_*.go lock its
// file.
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
	"path/filepath"
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
	fmt.Fprintln(os.Stderr, "exclusivejob:", err)
	if errors.Is(err, conclave.ErrInvalid) || errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

type options struct {
	cfg          conclave.Config
	every, takes time.Duration
	store        string
}

var errUsage = errors.New("run it with -help for all flags")

func parse(args []string) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("exclusivejob", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), `Exclusivejob runs one of several processes that share a periodic job.
"go doc ./examples/exclusivejob" prints the commands that start a group of three.

Flags:`)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.cfg.Dir, "dir", "", "data `directory` of this member alone; created if missing (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&join, "join", "", "comma-separated `addresses` of other members")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of this many `members` (default: 1 without -join; with -join, form none)")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this process (required)")
	flags.DurationVar(&o.cfg.SessionTTL, "ttl", 10*time.Second, "session TTL, after which a crashed process loses the job; 1s to 24h")
	flags.DurationVar(&o.every, "every", 20*time.Second, "length of a period")
	flags.DurationVar(&o.takes, "takes", 8*time.Second, "duration of the job")
	flags.StringVar(&o.store, "store", "", "`file` that the job writes; its folder must exist (required)")
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
	case o.store == "":
		return o, fmt.Errorf("missing -store, the file that the job writes: %w", errUsage)
	case o.every <= 0 || o.takes <= 0:
		return o, fmt.Errorf("invalid -every or -takes: want more than 0s, got %v and %v: %w", o.every, o.takes, errUsage)
	}
	if _, err := os.Stat(filepath.Dir(o.store)); err != nil {
		return o, fmt.Errorf("invalid -store: %w: %w", err, errUsage)
	}
	return o, nil // Open validates the rest and reports all faults at once
}

// run opens the member, runs the job and closes the member. It returns nil if
// ctx ended it.
func run(ctx context.Context, o options, w io.Writer) error {
	logf := newLog(w)
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
	logf("%s is in the group", o.cfg.Name)
	j := &job{node: node, store: store{o.store}, name: o.cfg.Name, every: o.every, takes: o.takes, logf: logf}
	err = j.run(ctx)
	if ctx.Err() != nil {
		err = nil
	}
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
