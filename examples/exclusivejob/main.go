//go:build unix

// Exclusivejob is one of several processes that share a job, as of cron: once in
// each period one of them runs it. Start three, each in a terminal of its own:
//
//	go run ./examples/exclusivejob -dir /tmp/job/1 -bind 127.0.0.1:7401 -join 127.0.0.1:7402,127.0.0.1:7403 -expect 3 -name anna -store /tmp/job/report.json
//	go run ./examples/exclusivejob -dir /tmp/job/2 -bind 127.0.0.1:7402 -join 127.0.0.1:7401,127.0.0.1:7403 -expect 3 -name ben -store /tmp/job/report.json
//	go run ./examples/exclusivejob -dir /tmp/job/3 -bind 127.0.0.1:7403 -join 127.0.0.1:7401,127.0.0.1:7402 -expect 3 -name clara -store /tmp/job/report.json
//
// A lock lets one of them run at a time, and a key remembers which period is done,
// so that those who come after do not run it again. Kill the one that runs with
// -9: when its session has been silent for its TTL, another one runs the job for
// the same period, under a larger fence. Stop it with -STOP instead, and continue
// it with -CONT when another one has run: it sees that it has lost the lock, and
// should it look too late, the store refuses what it brings.
//
// main.go sets the member up, job.go decides who runs when, store.go is the
// resource that the fence protects.
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
		context.AfterFunc(ctx, stop) // the second one is not caught
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

var errUsage = errors.New("-help says more")

func parse(args []string) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("exclusivejob", flag.ExitOnError)
	flags.StringVar(&o.cfg.Dir, "dir", "", "`directory` of this member alone; it is created (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&join, "join", "", "`addresses` of other members, separated by commas")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of so many members (default: 1 without -join, else none)")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this process (required)")
	flags.DurationVar(&o.cfg.SessionTTL, "ttl", 10*time.Second, "how long a silent process keeps the job; 1s to 24h")
	flags.DurationVar(&o.every, "every", 20*time.Second, "how long a period is")
	flags.DurationVar(&o.takes, "takes", 8*time.Second, "how long the job takes")
	flags.StringVar(&o.store, "store", "", "`file` that the job writes; its folder has to exist (required)")
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
	case o.store == "":
		return o, fmt.Errorf("-store is missing: say where the job is to write; %w", errUsage)
	case o.every <= 0 || o.takes <= 0:
		return o, fmt.Errorf("-every is %v and -takes is %v; both have to be more than nothing; %w", o.every, o.takes, errUsage)
	}
	if _, err := os.Stat(filepath.Dir(o.store)); err != nil {
		return o, fmt.Errorf("-store: %w; %w", err, errUsage)
	}
	return o, nil // the rest is for Open to judge, which finds all faults at once
}

// run is the whole life of the process. It returns nil when it ended because it
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
	j := &job{
		lock: node.FencedLock(jobName), kv: node.KV(), store: store{o.store},
		name: o.cfg.Name, every: o.every, takes: o.takes, say: say,
	}
	err = j.live(ctx)
	if ctx.Err() != nil {
		err = nil
	}
	// ctx may have ended, so the farewell gets a context of its own.
	if err := node.Close(context.WithoutCancel(ctx)); err != nil {
		say("the farewell was cut short: %v", err)
	}
	say("closed")
	return err
}
