// Member runs one member of a group that shares a lock. Start three, each in a
// terminal of its own:
//
//	go run ./examples/member -dir /tmp/conclave/1 -bind 127.0.0.1:7001 -join 127.0.0.1:7002,127.0.0.1:7003 -expect 3 -name anna -lock invoices
//	go run ./examples/member -dir /tmp/conclave/2 -bind 127.0.0.1:7002 -join 127.0.0.1:7001,127.0.0.1:7003 -expect 3 -name ben -lock invoices
//	go run ./examples/member -dir /tmp/conclave/3 -bind 127.0.0.1:7003 -join 127.0.0.1:7001,127.0.0.1:7002 -expect 3 -name clara -lock invoices
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
// main.go opens and closes the member, campaign.go uses the lock, watch.go
// prints what happens in the group.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	o, err := parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, stop, o, os.Stdout)
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

type options struct {
	cfg  conclave.Config
	lock string
}

var errUsage = errors.New("run it with -help for all flags")

func parse(args []string) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("member", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), `Member runs one member of a group that shares a lock.
"go doc ./examples/member" prints the commands that start a group of three.

Flags:`)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.cfg.Dir, "dir", "", "data `directory` of this member alone; created if missing (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&o.cfg.Advertise, "advertise", "", "`address` that other members dial (default: that of -bind)")
	flags.StringVar(&join, "join", "", "comma-separated `addresses` of other members")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of this many `members` (default: 1 without -join; with -join, form none)")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this member in the output (default: the host name)")
	flags.StringVar(&o.lock, "lock", "", "`name` of the lock to acquire (required)")
	flags.DurationVar(&o.cfg.SessionTTL, "ttl", 10*time.Second, "session TTL, after which a crashed holder loses the lock; 1s to 24h")
	_ = flags.Parse(args) // exits on -help and on an error
	if join != "" {
		o.cfg.Join = strings.Split(join, ",")
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: %w", flags.Arg(0), errUsage)
	case o.cfg.Dir == "":
		return o, fmt.Errorf("missing -dir, the data directory of this member: %w", errUsage)
	case o.lock == "":
		return o, fmt.Errorf("missing -lock, the name of the lock to acquire: %w", errUsage)
	}
	return o, nil // Open validates the rest and reports all faults at once
}

// run opens the member, campaigns for the lock and closes the member. It
// returns nil if ctx ended it. stop gives signals their default effect back, so
// that a second Ctrl-C ends the process.
func run(ctx context.Context, stop func(), o options, w io.Writer) error {
	logf := newLog(w)
	l, err := net.Listen("tcp", o.cfg.Bind)
	if err != nil {
		return err
	}
	o.cfg.Listener = l // to print the port before the group has formed
	// While Open waits, the library logs at Info what it waits for.
	o.cfg.Logger = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: timeOfDay}))
	watch := newWatch(logf)
	o.cfg.Events = watch.events()
	logf("listening on %s", l.Addr())
	logf("opening %s; waiting for a majority of the group", o.cfg.Dir)
	node, err := conclave.Open(ctx, &o.cfg)
	if err != nil && ctx.Err() != nil {
		return nil // interrupted before the member was open
	}
	if err != nil {
		return err
	}
	watch.opened(node)
	err = campaign(ctx, node, o.lock, logf)
	stop()
	shutDown(node, logf)
	return err
}

// shutDown closes the node gracefully. The context of run is done by now, so
// Close gets one of its own; the graceful part is what releases the lock at
// once instead of after the TTL.
func shutDown(node *conclave.Node, logf logFunc) {
	logf("shutting down gracefully; interrupt again to stop at once")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := node.Close(ctx); err != nil {
		logf("the graceful shutdown is incomplete: %v", err)
	}
	logf("closed")
}

// timeOfDay shortens the time of a log line to the form that the other lines
// have.
func timeOfDay(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		a.Value = slog.StringValue(a.Value.Time().Format("15:04:05.000"))
	}
	return a
}
