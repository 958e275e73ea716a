// Configwatch is one of several processes that share configuration, and hear of
// each change of it. Start three, each in a terminal of its own:
//
//	go run ./examples/configwatch -dir /tmp/config/1 -bind 127.0.0.1:7301 -join 127.0.0.1:7302,127.0.0.1:7303 -expect 3 -name anna
//	go run ./examples/configwatch -dir /tmp/config/2 -bind 127.0.0.1:7302 -join 127.0.0.1:7301,127.0.0.1:7303 -expect 3 -name ben
//	go run ./examples/configwatch -dir /tmp/config/3 -bind 127.0.0.1:7303 -join 127.0.0.1:7301,127.0.0.1:7302 -expect 3 -name clara
//
// Type port=8080 into one of them: all print the change, in the same order and
// with the same index. Type port alone to delete it. Kill the one that wrote with
// -9: what it wrote is there, and another one goes on. Start it again: it first
// reads what is, and then follows.
//
// main.go sets the member up and takes what is typed, follower.go watches.
package main

import (
	"bufio"
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

	"github.com/conclave-go/conclave"
)

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // the second one is not caught
		err = run(ctx, o, os.Stdin, os.Stdout)
	}
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "configwatch:", err)
	if errors.Is(err, conclave.ErrInvalid) || errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

type options struct {
	cfg    conclave.Config
	prefix string
}

var errUsage = errors.New("-help says more")

func parse(args []string) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("configwatch", flag.ExitOnError)
	flags.StringVar(&o.cfg.Dir, "dir", "", "`directory` of this member alone; it is created (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&join, "join", "", "`addresses` of other members, separated by commas")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of so many members (default: 1 without -join, else none)")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this process (required)")
	flags.StringVar(&o.prefix, "prefix", "config/", "what the keys begin with")
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
	}
	return o, nil // the rest is for Open to judge, which finds all faults at once
}

// run is the whole life of the process. It returns nil when it ended because it
// was interrupted.
func run(ctx context.Context, o options, in io.Reader, w io.Writer) error {
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
	say("%s is in the group; type key=value to set a key, key to delete it", o.cfg.Name)
	go take(ctx, node.KV(), o.prefix, in, say) // nothing ends a read of the terminal but the end of the process
	err = newFollower(node.KV(), o.prefix, say).follow(ctx)
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

// take writes what is typed.
func take(ctx context.Context, kv *conclave.KV, prefix string, in io.Reader, say teller) {
	for typed := bufio.NewScanner(in); typed.Scan(); {
		line := strings.TrimSpace(typed.Text())
		if line == "" {
			continue
		}
		key, value, set := strings.Cut(line, "=")
		var err error
		if set {
			_, err = kv.Put(ctx, prefix+key, []byte(value))
		} else {
			err = kv.Delete(ctx, prefix+key)
		}
		if err != nil {
			say("%s: %v", line, err)
		}
	}
}
