// Quickstart shows the story of a lock that is shared by three members, in
// seven chapters, as a timeline. It takes about fifteen seconds:
//
//	go run ./examples/quickstart
//
// The three members run in one process only so that one command shows them all.
// Each has its own port and directory and talks to the others over TCP, as it
// would on a machine of its own. The program exits with status 1 if anything
// differs from the story.
//
// story.go and endings.go are the chapters, owner.go the calls that they make,
// ledger.go is a resource that checks fences. examples/oneprocess opens and closes
// members, and makes one look crashed.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/conclave-go/conclave/examples/oneprocess"
)

func main() {
	oneprocess.Main("quickstart", `Quickstart shows the story of a lock that is shared by three members. It takes
about fifteen seconds.`, func(ctx context.Context) error { return run(ctx, os.Stdout) })
}

func run(ctx context.Context, w io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "conclave-quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // a leftover is in the system's temporary folder

	t := newTimeline(w)
	t.print("conclave: the story of a lock, told by three members on loopback. The session TTL is %v.\n", sessionTTL)
	s := &story{group: newGroup(dir), line: t}
	defer oneprocess.Close(s.group)
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
