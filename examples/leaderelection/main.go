// Leaderelection is one of several processes of which one leads, and all know
// which. Start three, each in a terminal of its own:
//
//	go run ./examples/leaderelection -dir /tmp/election/1 -bind 127.0.0.1:7101 -join 127.0.0.1:7102,127.0.0.1:7103 -expect 3 -name anna
//	go run ./examples/leaderelection -dir /tmp/election/2 -bind 127.0.0.1:7102 -join 127.0.0.1:7101,127.0.0.1:7103 -expect 3 -name ben
//	go run ./examples/leaderelection -dir /tmp/election/3 -bind 127.0.0.1:7103 -join 127.0.0.1:7101,127.0.0.1:7102 -expect 3 -name clara
//
// One of them leads and ticks each second; the others say who it is. Kill it with
// -9: when its session has been silent for its TTL, another one leads, under a
// larger fence. Press Ctrl-C in the leader instead: it resigns, and the next one
// leads at once. A second Ctrl-C kills it.
//
// main.go sets the member up, candidate.go campaigns, leads and observes.
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

var errUsage = errors.New("-help says more")

func parse(args []string) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("leaderelection", flag.ExitOnError)
	flags.StringVar(&o.cfg.Dir, "dir", "", "`directory` of this member alone; it is created (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&join, "join", "", "`addresses` of other members, separated by commas")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of so many members (default: 1 without -join, else none)")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this candidate (required)")
	flags.DurationVar(&o.cfg.SessionTTL, "ttl", 10*time.Second, "how long a silent leader still leads; 1s to 24h")
	flags.StringVar(&o.election, "election", "scheduler", "`name` of the election")
	flags.DurationVar(&o.tick, "tick", time.Second, "how often the leader does its work")
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
		return o, fmt.Errorf("-name is missing: say what the others are to see when this one leads; %w", errUsage)
	case o.election == "":
		return o, fmt.Errorf("-election is empty: say what they are to lead; %w", errUsage)
	case o.tick <= 0:
		return o, fmt.Errorf("-tick is %v; it has to be more than nothing; %w", o.tick, errUsage)
	}
	return o, nil // the rest is for Open to judge, which finds all faults at once
}

// run is the whole life of the member. It returns nil when it ended because it
// was interrupted.
func run(ctx context.Context, o options, w io.Writer) error {
	say := newTeller(w)
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
	c := &candidate{node: node, election: node.Election(o.election), name: o.cfg.Name, tick: o.tick, say: say}
	err = c.live(ctx)
	// ctx may have ended, so the farewell gets a context of its own.
	if err := node.Close(context.WithoutCancel(ctx)); err != nil {
		say("the farewell was cut short: %v", err)
	}
	say("closed")
	return err
}
