// Cache runs one of several processes that read keys of the group from memory, and
// none of them an old value. Start three, each in a terminal of its own:
//
//	go run ./examples/cache -dir /tmp/cache/1 -bind 127.0.0.1:7501 -join 127.0.0.1:7502,127.0.0.1:7503 -expect 3 -name anna
//	go run ./examples/cache -dir /tmp/cache/2 -bind 127.0.0.1:7502 -join 127.0.0.1:7501,127.0.0.1:7503 -expect 3 -name ben
//	go run ./examples/cache -dir /tmp/cache/3 -bind 127.0.0.1:7503 -join 127.0.0.1:7501,127.0.0.1:7502 -expect 3 -name clara
//
// Type port=8080 into one of them, and port into all, several times: a second after
// the write they read it from memory, in microseconds. Type port=8081 into another
// one: once it prints that this is written, each process reads the new value.
//
// Readers hold the lock of a key shared and release it, but it lingers in their
// processes, all at the same time. A writer takes it exclusively, which recalls it
// from all of them.
//
// Each process prints the command that kills it (kill -9 and its process ID). Kill one
// that reads from memory and write in another one: the write waits until the session
// of the killed process expires, after its TTL of 10 seconds. Or pause it: kill -STOP
// and its process ID. Write in another one, type port into the paused one, and then
// kill -CONT: it has lost the lock, and reads the new value from the group.
//
// main.go opens and closes the member and reads the input, cache.go is the cache.
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
	"sync"
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
	fmt.Fprintln(os.Stderr, "cache:", err)
	if errors.Is(err, conclave.ErrInvalid) || errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

type options struct {
	cfg    conclave.Config
	linger time.Duration
}

var errUsage = errors.New("run it with -help for all flags")

func parse(args []string) (options, error) {
	var o options
	var join string
	flags := flag.NewFlagSet("cache", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), `Cache runs one of several processes that read shared keys from memory.
"go doc ./examples/cache" prints the commands that start a group of three.

Flags:`)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.cfg.Dir, "dir", "", "data `directory` of this member alone; created if missing (required)")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&join, "join", "", "comma-separated `addresses` of other members")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of this many `members` (default: 1 without -join; with -join, form none)")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this process (required)")
	flags.DurationVar(&o.cfg.SessionTTL, "ttl", 10*time.Second, "session TTL, for which a crashed process keeps writers waiting; 1s to 24h")
	flags.DurationVar(&o.linger, "linger", time.Minute, "time for which a key that is not read stays in memory; 1ms to 1h")
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
	case o.linger < time.Millisecond || o.linger > time.Hour:
		return o, fmt.Errorf("invalid -linger: want 1ms to 1h, got %v: %w", o.linger, errUsage)
	}
	return o, nil // Open validates the rest and reports all faults at once
}

// run opens the member, executes the input and closes the member. It returns nil if
// ctx ended it.
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
	logf("type key=value to write a key, key to read it")
	go readInput(ctx, newCache(node, o.linger), in, logf) // a read of a terminal cannot be cancelled, so nothing waits for it
	select {
	case <-ctx.Done():
	case <-node.Done():
		err = node.Err()
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
func readInput(ctx context.Context, c *cache, in io.Reader, logf logFunc) {
	for input := bufio.NewScanner(in); input.Scan(); {
		line := strings.TrimSpace(input.Text())
		if line == "" {
			continue
		}
		if err := execute(ctx, c, line, logf); err != nil {
			logf("%s: %v", line, err)
		}
	}
}

var errNoKey = errors.New("missing key: type key=value to write a key, key to read it")

// execute writes a key, or reads it if the line has no "=".
func execute(ctx context.Context, c *cache, line string, logf logFunc) error {
	key, text, write := strings.Cut(line, "=")
	key, text = strings.TrimSpace(key), strings.TrimSpace(text)
	if key == "" {
		return errNoKey // the prefix alone would be a valid key
	}
	began := time.Now()
	if write {
		if err := c.put(ctx, key, text); err != nil {
			return err
		}
		logf("%s = %s is written, in %v", key, text, time.Since(began))
		return nil
	}
	text, near, err := c.get(ctx, key)
	if err != nil {
		return err
	}
	took, from := time.Since(began), "the group"
	if near {
		from = "memory"
	}
	logf("%s = %s from %s, in %v", key, text, from, took)
	return nil
}

// killCommand returns the command that ends this process without a graceful
// shutdown.
func killCommand() string {
	if runtime.GOOS == "windows" {
		return fmt.Sprintf("taskkill /F /PID %d", os.Getpid())
	}
	return fmt.Sprintf("kill -9 %d", os.Getpid())
}

// logFunc prints one line with the time of day.
type logFunc func(format string, args ...any)

func newLog(w io.Writer) logFunc {
	var mu sync.Mutex // one line at a time
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}
