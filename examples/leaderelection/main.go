// Leaderelection runs one of several processes that elect a leader and observe
// the election. Start three, each in a terminal of its own:
//
//	go run ./examples/leaderelection -dir /tmp/election/1 -bind 127.0.0.1:7101 -join 127.0.0.1:7102,127.0.0.1:7103 -expect 3 -name anna
//	go run ./examples/leaderelection -dir /tmp/election/2 -bind 127.0.0.1:7102 -join 127.0.0.1:7101,127.0.0.1:7103 -expect 3 -name ben
//	go run ./examples/leaderelection -dir /tmp/election/3 -bind 127.0.0.1:7103 -join 127.0.0.1:7101,127.0.0.1:7102 -expect 3 -name clara
//
// One of them leads and prints a tick each second; the others print its name.
// The leader prints the command that kills it (kill -9 and its process ID). Run
// the command in a fourth terminal: when the session of the killed leader
// expires, after its TTL of 10 seconds, another candidate leads with a larger
// fence; with conclave.ProcessCheck in Config.SessionChecks, within a second.
// Press Ctrl-C in the leader instead: it resigns, and the next candidate
// leads at once. A second Ctrl-C ends it without the graceful shutdown.
//
// The leader of the election is an application's leader. It need not be the
// member that leads the Raft group.
//
// main.go opens and closes the member, candidate.go campaigns, leads and
// observes.
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
	fmt.Fprintln(os.Stderr, "leaderelection:", err)
	if errors.Is(err, conclave.ErrInvalid) || errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

type options struct {
	cfg      conclave.Config
	election string
	tick     time.Duration
}

var errUsage = errors.New("run it with -help for all flags")

func parse(args []string) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("leaderelection", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), `Leaderelection runs one of several processes that elect a leader.
"go doc ./examples/leaderelection" prints the commands that start a group of three.

Flags:`)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.cfg.Dir, "dir", "", "data `directory` of this member alone; created if missing (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&join, "join", "", "comma-separated `addresses` of other members")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of this many `members` (default: 1 without -join; with -join, form none)")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this candidate (required)")
	flags.DurationVar(&o.cfg.SessionTTL, "ttl", 10*time.Second, "session TTL, after which a crashed leader loses the lead; 1s to 24h")
	flags.StringVar(&o.election, "election", "scheduler", "`name` of the election")
	flags.DurationVar(&o.tick, "tick", time.Second, "interval at which the leader works")
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
		return o, fmt.Errorf("missing -name, by which the others know this candidate: %w", errUsage)
	case o.election == "":
		return o, fmt.Errorf("empty -election: %w", errUsage)
	case o.tick <= 0:
		return o, fmt.Errorf("invalid -tick: want more than 0s, got %v: %w", o.tick, errUsage)
	}
	return o, nil // Open validates the rest and reports all faults at once
}

// run opens the member, campaigns and closes the member. It returns nil if ctx
// ended it.
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
	c := &candidate{node: node, election: node.Election(o.election), name: o.cfg.Name, tick: o.tick, logf: logf}
	err = c.run(ctx)
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
