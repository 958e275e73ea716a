// Member runs one member of a group, and operates it. Start three, each in a
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
// With -admin, a running member answers operators on a loopback port, and the
// same program is their client ("member status"); "member -help" lists the
// commands. docs/OPERATIONS.md has the procedures.
//
// To read: main.go opens and closes the member, campaign.go uses the lock,
// watch.go prints what happens in the group; flags.go and tls.go make the
// configuration; admin.go is the operators' door and client.go its other side;
// offline.go works on directories of members that are down.
package main

import (
	"context"
	"errors"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, stop, os.Args[1:])
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "member:", err)
	switch {
	case errors.Is(err, conclave.ErrInvalid), errors.Is(err, errUsage):
		os.Exit(2)
	case errors.Is(err, conclave.ErrRemoved):
		os.Exit(3) // a restart with the same directory is useless
	}
	os.Exit(1)
}

// dispatch runs a command, or a member if the arguments begin with a flag.
func dispatch(ctx context.Context, stop func(), args []string) error {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return command(ctx, args[0], args[1:], os.Stdout)
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	return run(ctx, stop, o, os.Stdout)
}

// run opens the member, campaigns for the lock and closes the member. It
// returns nil if ctx or an operator's "leave" ended it. stop gives signals their
// default effect back, so that a second Ctrl-C ends the process.
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
	a := newAdmin()
	if err := a.listen(o, logf); err != nil {
		l.Close()
		return err
	}
	defer a.close()
	logf("listening on %s", l.Addr())
	logf("opening %s; waiting for a majority of the group", place(o.cfg.Dir))
	node, err := conclave.Open(ctx, &o.cfg)
	if err != nil && ctx.Err() != nil {
		return nil // interrupted before the member was open
	}
	if err != nil {
		return err
	}
	watch.opened(node)
	a.opened(node)
	err = campaign(ctx, node, o.lock, logf)
	stop()
	shutDown(node, o.leave, logf)
	return err
}

func place(dir string) string {
	if dir == "" {
		return "in memory"
	}
	return dir
}

// leaveTimeout bounds Leave, which may wait for an election.
const leaveTimeout = 20 * time.Second

// shutDown closes the node gracefully. The context of run is done by now, so
// Close gets one of its own; the graceful part is what releases the lock at
// once instead of after the TTL.
func shutDown(node *conclave.Node, leave bool, logf logFunc) {
	logf("shutting down gracefully; interrupt again to stop at once")
	if leave && node.Err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		if err := node.Leave(ctx); err != nil {
			logf("not left: %v", err)
		} else {
			logf("left the group")
		}
	}
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
