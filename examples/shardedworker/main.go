// Shardedworker runs one of several processes that share 12 shards of a store:
// each works on some of them, and no shard has two owners. Start three, each in a
// terminal of its own:
//
//	go run ./examples/shardedworker -dir /tmp/shards/1 -bind 127.0.0.1:7601 -join 127.0.0.1:7602,127.0.0.1:7603 -expect 3 -name anna -store /tmp/shards/store
//	go run ./examples/shardedworker -dir /tmp/shards/2 -bind 127.0.0.1:7602 -join 127.0.0.1:7601,127.0.0.1:7603 -expect 3 -name ben -store /tmp/shards/store
//	go run ./examples/shardedworker -dir /tmp/shards/3 -bind 127.0.0.1:7603 -join 127.0.0.1:7601,127.0.0.1:7602 -expect 3 -name clara -store /tmp/shards/store
//
// The work on a shard is to count in a file of the store. Each process prints
// which shards it begins and ends; soon each has four. The store refuses what an
// earlier owner of a shard writes late, by the fence.
//
//   - Kill one with the command that it prints (kill -9 and its process ID). Its
//     session expires after the TTL of 10 seconds, its shards wait for the time of
//     -settle, 15 seconds, and then the others begin them.
//   - Roll them: kill -TERM and the process ID, and the same command again, for one
//     after the other. The shards of each wait for its return, and nothing begins
//     or ends elsewhere.
//   - Ctrl-C in one: it gives its shards away, and the others begin them at once.
//   - Pause one, by kill -STOP and its process ID, and kill -CONT when the others
//     have begun its shards. It notices that it has lost them; if it notices too
//     late, the store refuses what it writes.
//   - Start a fourth, with another -dir, -name and -bind, the three addresses in
//     -join, and no -expect: three shards move to it. With -capacity 2 it gets more
//     than the others.
//
// On Windows the printed command is taskkill /F, and there are neither -TERM nor
// -STOP.
//
// main.go opens and closes the member, worker.go works on shards, store.go is the
// resource that checks fences.
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
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		context.AfterFunc(ctx, stop) // a second signal ends the process
		restarting, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		context.AfterFunc(restarting, stop)
		err = run(ctx, restarting, o, os.Stdout)
	}
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "shardedworker:", err)
	if errors.Is(err, conclave.ErrInvalid) || errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

type options struct {
	cfg           conclave.Config
	settle, every time.Duration
	capacity      int
	store         string
}

var errUsage = errors.New("run it with -help for all flags")

func parse(args []string) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("shardedworker", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), `Shardedworker runs one of several processes that share the shards of a store.
"go doc ./examples/shardedworker" prints the commands that start a group of three.

Flags:`)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.cfg.Dir, "dir", "", "data `directory` of this member alone; created if missing (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&join, "join", "", "comma-separated `addresses` of other members")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of this many `members` (default: 1 without -join; with -join, form none)")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this process, which its shards wait for (required)")
	flags.DurationVar(&o.cfg.SessionTTL, "ttl", 10*time.Second, "session TTL, after which a crashed process loses its shards; 1s to 24h")
	flags.DurationVar(&o.settle, "settle", 15*time.Second, "for how long the shards then wait for its return; up to 24h")
	flags.IntVar(&o.capacity, "capacity", 1, "`weight` of this process, 1 to 1024: its part of the shards is in proportion")
	flags.DurationVar(&o.every, "every", time.Second, "pause between two writes to a shard")
	flags.StringVar(&o.store, "store", "", "`folder` of the store, the same for all; created if missing (required)")
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
		return o, fmt.Errorf("missing -store, the folder of the store: %w", errUsage)
	case o.every <= 0:
		return o, fmt.Errorf("invalid -every: want more than 0s, got %v: %w", o.every, errUsage)
	}
	return o, nil // Open and Run validate the rest
}

// run opens the member, works on shards and closes the member. It returns nil if
// one of the contexts ended it: with ctx the shards are given away, with
// restarting they wait for the return of this process.
func run(ctx, restarting context.Context, o options, w io.Writer) error {
	logf := newLog(w)
	l, err := net.Listen("tcp", o.cfg.Bind)
	if err != nil {
		return err
	}
	o.cfg.Listener = l // to print the port before the group has formed
	logf("listening on %s; waiting for a majority of the group", l.Addr())
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(restarting, cancel)()
	node, err := conclave.Open(opening, &o.cfg)
	if err != nil && opening.Err() != nil {
		return nil // interrupted before the member was open
	}
	if err != nil {
		return err
	}
	logf("%s is in the group", o.cfg.Name)
	logf("to crash this process, run: %s", killCommand())
	worker := &worker{
		shards: node.Shards("store", shards, conclave.Settle(o.settle), conclave.Capacity(o.capacity)),
		store:  store{o.store}, name: o.cfg.Name, every: o.every, logf: logf,
	}
	ended := make(chan error, 1)
	go func() { ended <- worker.run(ctx) }()
	select {
	case err = <-ended:
		shutDown(node, logf)
	case <-restarting.Done():
		shutDown(node, logf) // while Run is running, so that its shards wait
		err = <-ended        // when no work is left
	}
	if ctx.Err() != nil || restarting.Err() != nil && errors.Is(err, conclave.ErrClosed) {
		err = nil
	}
	logf("closed")
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
}
