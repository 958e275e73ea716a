// Configwatch runs one of several processes that share configuration and watch
// it for changes. Start three, each in a terminal of its own:
//
//	go run ./examples/configwatch -dir /tmp/config/1 -bind 127.0.0.1:7301 -join 127.0.0.1:7302,127.0.0.1:7303 -expect 3 -name anna
//	go run ./examples/configwatch -dir /tmp/config/2 -bind 127.0.0.1:7302 -join 127.0.0.1:7301,127.0.0.1:7303 -expect 3 -name ben
//	go run ./examples/configwatch -dir /tmp/config/3 -bind 127.0.0.1:7303 -join 127.0.0.1:7301,127.0.0.1:7302 -expect 3 -name clara
//
// Type port=8080 into one of them: all print the change, in the same order and
// with the same index. Type port to delete the key. Each process prints the
// command that kills it (kill -9 and its process ID). Kill the one that you typed
// into: the others keep what it wrote, and you can type into them. Start it again
// with its old command: it lists the keys and then watches for changes.
//
// main.go opens and closes the member and reads the input, follower.go watches.
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
	"runtime"
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

var errUsage = errors.New("run it with -help for all flags")

func parse(args []string) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("configwatch", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), `Configwatch runs one of several processes that share configuration.
"go doc ./examples/configwatch" prints the commands that start a group of three.

Flags:`)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.cfg.Dir, "dir", "", "data `directory` of this member alone; created if missing (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&join, "join", "", "comma-separated `addresses` of other members")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of this many `members` (default: 1 without -join; with -join, form none)")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this process (required)")
	flags.StringVar(&o.prefix, "prefix", "config/", "`prefix` of the keys")
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
	}
	return o, nil // Open validates the rest and reports all faults at once
}

// run opens the member, follows the configuration and closes the member. It
// returns nil if ctx ended it.
func run(ctx context.Context, o options, in io.Reader, w io.Writer) error {
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
	logf("%s is in the group; to crash it, run: %s", o.cfg.Name, killCommand())
	logf("type key=value to set a key, key to delete it")
	go readInput(ctx, node.KV(), o.prefix, in, logf) // a read of a terminal cannot be cancelled, so nothing waits for it
	err = follow(ctx, node.KV(), o.prefix, logf)
	if ctx.Err() != nil {
		err = nil
	}
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

// readInput executes each line of the input.
func readInput(ctx context.Context, kv *conclave.KV, prefix string, in io.Reader, logf logFunc) {
	for input := bufio.NewScanner(in); input.Scan(); {
		line := strings.TrimSpace(input.Text())
		if line == "" {
			continue
		}
		if err := execute(ctx, kv, prefix, line); err != nil {
			logf("%s: %v", line, err)
		}
	}
}

var errNoKey = errors.New("missing key: type key=value to set a key, key to delete it")

// execute sets a key, or deletes it if the line has no "=".
func execute(ctx context.Context, kv *conclave.KV, prefix, line string) error {
	key, value, set := strings.Cut(line, "=")
	key = strings.TrimSpace(key)
	if key == "" {
		return errNoKey // the prefix alone would be a valid key
	}
	if !set {
		return kv.Delete(ctx, prefix+key)
	}
	_, err := kv.Put(ctx, prefix+key, []byte(strings.TrimSpace(value)))
	return err
}

// killCommand returns the command that ends this process without a graceful
// shutdown.
func killCommand() string {
	if runtime.GOOS == "windows" {
		return fmt.Sprintf("taskkill /F /PID %d", os.Getpid())
	}
	return fmt.Sprintf("kill -9 %d", os.Getpid())
}
