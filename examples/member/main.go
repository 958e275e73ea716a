// Member is one process of a group that shares a lock. Start three, each in a
// terminal of its own:
//
//	go run ./examples/member -dir /tmp/conclave/1 -bind 127.0.0.1:7001 -join 127.0.0.1:7002,127.0.0.1:7003 -expect 3 -lock invoices
//	go run ./examples/member -dir /tmp/conclave/2 -bind 127.0.0.1:7002 -join 127.0.0.1:7001,127.0.0.1:7003 -expect 3 -lock invoices
//	go run ./examples/member -dir /tmp/conclave/3 -bind 127.0.0.1:7003 -join 127.0.0.1:7001,127.0.0.1:7002 -expect 3 -lock invoices
//
// They form a group, and one of them gets the lock. Kill it with -9: when its
// session has been silent for its TTL, the next one gets the lock with a larger
// fence. Start it again with the same command: it finds its group and queues up.
// Press Ctrl-C: it takes leave, and the lock is handed on at once. A second Ctrl-C
// kills it.
//
// main.go sets the member up, campaign.go uses the lock, watch.go tells what
// the group does.
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
	opts, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "member:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, stop, opts, os.Stdout)
	switch {
	case errors.Is(err, conclave.ErrInvalid):
		fmt.Fprintln(os.Stderr, "member:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "member:", err)
		os.Exit(1)
	}
}

type options struct {
	cfg  conclave.Config
	lock string
}

func parse(args []string, w io.Writer) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("member", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // its errors are returned
	flags.StringVar(&o.cfg.Dir, "dir", "", "`directory` of this member alone; it is created (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&o.cfg.Advertise, "advertise", "", "`address` that the others dial (default: that of -bind)")
	flags.StringVar(&join, "join", "", "`addresses` of other members, separated by commas")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of so many members (default: 1 without -join, else none)")
	flags.StringVar(&o.cfg.Name, "name", "", "the member's `name` for people (default: the host's)")
	flags.StringVar(&o.lock, "lock", "", "`name` of the lock to campaign for (required)")
	flags.DurationVar(&o.cfg.SessionTTL, "ttl", 10*time.Second, "how long a silent holder keeps the lock; 1s to 24h")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(w)
			flags.Usage()
		}
		return o, err
	}
	if join != "" {
		o.cfg.Join = strings.Split(join, ",")
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is not a flag: all settings are", flags.Arg(0))
	case o.cfg.Dir == "":
		return o, errors.New("-dir is missing: say where this member is to keep its data")
	case o.lock == "":
		return o, errors.New("-lock is missing: say which lock to campaign for")
	}
	return o, nil // the rest is for Open to judge, which finds all faults at once
}

// run is the whole life of the member. It returns nil when it ended because it
// was interrupted. After stop, signals mean again what they always mean.
func run(ctx context.Context, stop func(), o options, w io.Writer) error {
	say := newTeller(w)
	l, err := net.Listen("tcp", o.cfg.Bind)
	if err != nil {
		return err
	}
	o.cfg.Listener = l // so that the port can be said before the group is there
	watch := newWatch(say)
	o.cfg.Events = watch.events()
	say("listening on %s", l.Addr())
	say("opening %s; that takes until a majority of the group is there", o.cfg.Dir)
	node, err := conclave.Open(ctx, &o.cfg)
	if err != nil && ctx.Err() != nil {
		return nil // interrupted before there was anything to take leave from
	}
	if err != nil {
		return err
	}
	watch.opened(node)
	err = campaign(ctx, node, o.lock, say)
	stop()
	say("taking leave; interrupt once more to be killed")
	// ctx has ended, so the farewell gets a context of its own. It is what hands
	// the lock on at once.
	if err := node.Close(context.WithoutCancel(ctx)); err != nil {
		say("the farewell was cut short: %v", err)
	}
	say("closed")
	return err
}
