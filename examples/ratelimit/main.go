// Ratelimit is one of several processes whose workers together do no more than
// a few jobs at once, because what they call bears no more. Start three, each in
// a terminal of its own:
//
//	go run ./examples/ratelimit -dir /tmp/ratelimit/1 -bind 127.0.0.1:7201 -join 127.0.0.1:7202,127.0.0.1:7203 -expect 3 -name anna
//	go run ./examples/ratelimit -dir /tmp/ratelimit/2 -bind 127.0.0.1:7202 -join 127.0.0.1:7201,127.0.0.1:7203 -expect 3 -name ben
//	go run ./examples/ratelimit -dir /tmp/ratelimit/3 -bind 127.0.0.1:7203 -join 127.0.0.1:7201,127.0.0.1:7202 -expect 3 -name clara
//
// Each has 3 workers, and never more than 4 of the 9 work. Kill one process with
// -9 while its workers work: the others make do with what is left, until the
// dead process's session has been silent for its TTL; then they have all 4 permits.
// Press Ctrl-C instead: its permits come back at once.
//
// With -journal the workers of all processes write down in one file when they
// begin and when they end, in the order in which it happens.
//
// main.go sets the member up, worker.go shares the permits.
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
		context.AfterFunc(ctx, stop) // the second one is not caught
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

var errUsage = errors.New("-help says more")

func parse(args []string) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("ratelimit", flag.ExitOnError)
	flags.StringVar(&o.cfg.Dir, "dir", "", "`directory` of this member alone; it is created (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&join, "join", "", "`addresses` of other members, separated by commas")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of so many members (default: 1 without -join, else none)")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this process (required)")
	flags.DurationVar(&o.cfg.SessionTTL, "ttl", 10*time.Second, "how long a silent process keeps its permits; 1s to 24h")
	flags.IntVar(&o.limit, "limit", 4, "how many jobs at once, over all processes; all have to say the same")
	flags.IntVar(&o.workers, "workers", 3, "how many workers this process has")
	flags.DurationVar(&o.work, "work", 2*time.Second, "how long a job takes")
	flags.StringVar(&o.journal, "journal", "", "`file`, shared by all processes, for what the workers do")
	_ = flags.Parse(args) // ends the process itself
	if join != "" {
		o.cfg.Join = strings.Split(join, ",")
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is not a flag: all settings are; %w", flags.Arg(0), errUsage)
	case o.cfg.Dir == "":
		return o, fmt.Errorf("-dir is missing: say where this member is to keep its data; %w", errUsage)
	case o.cfg.Name == "":
		return o, fmt.Errorf("-name is missing: say what to call this process; %w", errUsage)
	case o.limit < 1:
		return o, fmt.Errorf("-limit is %d; it has to be at least 1; %w", o.limit, errUsage)
	case o.workers < 1:
		return o, fmt.Errorf("-workers is %d; it has to be at least 1; %w", o.workers, errUsage)
	case o.work <= 0:
		return o, fmt.Errorf("-work is %v; it has to be more than nothing; %w", o.work, errUsage)
	}
	return o, nil // the rest is for the library to judge
}

// run is the whole life of the process. It returns nil when it ended because it
// was interrupted.
func run(ctx context.Context, o options, w io.Writer) error {
	say := newTeller(w)
	book, err := openJournal(o.journal)
	if err != nil {
		return err
	}
	defer book.close()
	l, err := net.Listen("tcp", o.cfg.Bind)
	if err != nil {
		return err
	}
	o.cfg.Listener = l // so that the port can be said before the group is there
	say("listening on %s; waiting for a majority of the group", l.Addr())
	node, err := conclave.Open(ctx, &o.cfg)
	if err != nil && ctx.Err() != nil {
		return nil // interrupted before there was anything to take leave from
	}
	if err != nil {
		return err
	}
	say("%s is in the group", o.cfg.Name)
	err = employ(ctx, node, o, book, say)
	// ctx may have ended, so the farewell gets a context of its own.
	if err := node.Close(context.WithoutCancel(ctx)); err != nil {
		say("the farewell was cut short: %v", err)
	}
	say("closed")
	return err
}
