// Quickstart tells the story of a lock that is shared by three members, in
// seven chapters, as a timeline. It takes about five seconds:
//
//	go run ./examples/quickstart
//
// The three members run in one process only so that one command shows them all.
// Each has its own port and directory and talks to the others over TCP, as it
// would on a machine of its own. The program exits with status 1 if anything
// differs from the story.
//
// story.go and endings.go are the chapters, owner.go the calls that they make,
// group.go opens and closes members, cable.go makes one look crashed, ledger.go
// is a resource that checks fences.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), `Quickstart tells the story of a lock that is shared by three members. It takes
about five seconds and has no flags:

	go run ./examples/quickstart`)
	}
	flag.Parse() // exits on -help and on an error
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "quickstart: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "\nquickstart:", err)
		os.Exit(1)
	}
}

// storyTimeout ends a story that hangs.
const storyTimeout = 30 * time.Second

func run(ctx context.Context, w io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, storyTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "conclave-quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // a leftover is in the system's temporary folder

	t := newTimeline(w)
	t.print("conclave: the story of a lock, told by three members on loopback. The session TTL is %v.\n", sessionTTL)
	s := &story{group: newGroup(dir), line: t}
	defer s.group.close()
	chapters := []struct {
		title, summary string
		tell           func(context.Context) error
	}{
		{"A group forms", "Three members find each other and form a group. From now on a majority, two of them, decides.", s.form},
		{"One holder at a time", "A second caller is refused, or waits. Waiters are served first in, first out.", s.takeTurns},
		{"Re-entry", "A handle made with Reentrant(2) may acquire its lock twice.", s.reenter},
		{"The holder crashes", "Its session expires when it has not been renewed for the TTL; then the next waiter is granted.", s.holderCrashes},
		{"An operator steps in", "Any session can be closed by force. Its holder is notified and cannot go on as if nothing had happened.", s.forceClose},
		{"A graceful shutdown", "Close releases what the member holds, so the next waiter is granted at once, without waiting for a TTL.", s.gracefulShutdown},
		{"The leader crashes", "The log, and with it the queue, is on the disks of a majority: no waiter is lost.", s.leaderCrashes},
	}
	for i, c := range chapters {
		t.chapter(i+1, c.title, c.summary)
		if err := c.tell(ctx); err != nil {
			return fmt.Errorf("chapter %d, %q: %w", i+1, c.title, err)
		}
	}
	t.end("All %d chapters passed, in %.1f s.", len(chapters), t.elapsed().Seconds())
	return nil
}
