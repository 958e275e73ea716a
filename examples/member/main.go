// Member runs one of several processes that share a lock. Start three, each in a
// terminal of its own:
//
//	go run ./examples/member -name anna -dir /tmp/conclave/1 -bind 127.0.0.1:7001 -join 127.0.0.1:7002,127.0.0.1:7003 -expect 3 -lock invoices
//	go run ./examples/member -name ben -dir /tmp/conclave/2 -bind 127.0.0.1:7002 -join 127.0.0.1:7001,127.0.0.1:7003 -expect 3 -lock invoices
//	go run ./examples/member -name clara -dir /tmp/conclave/3 -bind 127.0.0.1:7003 -join 127.0.0.1:7001,127.0.0.1:7002 -expect 3 -lock invoices
//
// The group forms when all three run, and one of them acquires the lock. That
// one prints the command that kills it (kill -9 and its process ID). Run the
// command in a fourth terminal: when the session of the killed member expires,
// after its TTL of 10 seconds, the next waiter acquires the lock with a larger
// fence. Start the killed member again with its old command: it rejoins its
// group and queues for the lock.
//
// Press Ctrl-C in the holder instead: it shuts down gracefully, and the next
// waiter acquires the lock at once. A second Ctrl-C ends it without the graceful
// shutdown.
//
// main.go opens and closes the member, hold.go uses the lock. docs/CLI.md has the
// program that operates the group.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/conclave-go/conclave"
)

func main() {
	cfg, lock, err := parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, stop, cfg, lock)
	}
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "member:", err)
	if errors.Is(err, conclave.ErrInvalid) || errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

var errUsage = errors.New("run it with -help for all flags")

func parse(args []string) (cfg *conclave.Config, lock string, err error) {
	cfg = &conclave.Config{}
	var join string
	flags := flag.NewFlagSet("member", flag.ExitOnError)
	flags.StringVar(&cfg.Dir, "dir", "", "data `directory` of this member alone; created if missing (required)")
	flags.StringVar(&cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&join, "join", "", "comma-separated `addresses` of other members")
	flags.IntVar(&cfg.Expect, "expect", 0, "form a new group of this many `members` (default: 1 without -join; with -join, form none)")
	flags.StringVar(&cfg.Name, "name", "", "`name` of this member in the output (default: the host name)")
	flags.DurationVar(&cfg.SessionTTL, "ttl", 10*time.Second, "session TTL, after which a crashed holder loses the lock; 1s to 24h")
	flags.StringVar(&lock, "lock", "invoices", "`name` of the lock")
	_ = flags.Parse(args) // exits on -help and on an error
	if join != "" {
		cfg.Join = strings.Split(join, ",")
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: %w", flags.Arg(0), errUsage)
	case cfg.Dir == "":
		err = fmt.Errorf("missing -dir, the data directory of this member: %w", errUsage)
	}
	return cfg, lock, err // Open validates the rest and reports all faults at once
}

// run opens the member, holds the lock whenever it is granted, and closes the
// member. It returns nil if ctx ended it. stop gives signals their default effect
// back, so that a second Ctrl-C ends the process.
func run(ctx context.Context, stop func(), cfg *conclave.Config, lock string) error {
	out := log.New(os.Stdout, "", log.Ltime)
	l, err := net.Listen("tcp", cfg.Bind)
	if err != nil {
		return err
	}
	cfg.Listener = l // to print the port before the group has formed
	// The library logs what happens in the group, and what Open waits for.
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stdout, nil))
	out.Printf("listening on %s; waiting for a majority of the group", l.Addr())
	node, err := conclave.Open(ctx, cfg)
	if err != nil && ctx.Err() != nil {
		return nil // interrupted before the member was open
	}
	if err != nil {
		return err
	}
	out.Printf("open: member %v of a group of %d", node.Status().ID, len(node.Status().Members))
	err = hold(ctx, node, lock, out)
	stop()
	shutDown(node, out)
	return err
}

// shutDown closes the node gracefully. The context of run may be done, so Close
// gets one of its own; the graceful part is what releases the lock at once
// instead of after the TTL.
func shutDown(node *conclave.Node, out *log.Logger) {
	out.Print("shutting down gracefully; interrupt again to stop at once")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := node.Close(ctx); err != nil {
		out.Printf("the graceful shutdown is incomplete: %v", err)
	}
	out.Print("closed")
}
