// Quickstart tells the story of a lock that is held across processes, in seven
// chapters, as a timeline. It takes about ten seconds:
//
//	go run ./examples/quickstart
//
// Three members run in this one process, only so that one command shows them
// all. Each has a port and a directory of its own and talks to the others over
// TCP; on three machines they would do the same. It exits with status 1 as soon
// as anything goes otherwise than told.
//
// Read story.go and endings.go for the chapters, owner.go for the calls that they
// make, group.go for how members are started and killed, ledger.go for a resource
// that checks fences.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "\nquickstart: it went otherwise:", err)
		os.Exit(1)
	}
}

// patience is when something must be wrong.
const patience = 30 * time.Second

func run(ctx context.Context, w io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dir, err := os.MkdirTemp("", "conclave-quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // temporary: what it leaves the system removes

	t := newTimeline(w)
	t.print("conclave: the story of a lock, told by three members on loopback. Sessions last %v.\n", sessionTTL)
	s := &story{group: newGroup(dir), line: t}
	defer s.group.close()
	chapters := []struct {
		title, meaning string
		tell           func(context.Context) error
	}{
		{"A group forms", "Three members find each other and agree on who is in. A majority, two of them, decides from now on.", s.form},
		{"One holder at a time", "Who asks while it is taken is refused, or waits. First in, first out.", s.takeTurns},
		{"Re-entry", "A handle may lock again what it holds, if it was made for that, up to its limit.", s.reenter},
		{"The holder dies", "Nobody hears from it again. When its session has been silent for its TTL, the next one is granted.", s.holderDies},
		{"An operator steps in", "Any session can be ended by force. Its holder learns of it and cannot go on as if nothing had happened.", s.forceClose},
		{"A farewell", "A member that is closed in good order hands on what it holds at once. No TTL has to pass.", s.farewell},
		{"The leader dies", "What was agreed is on the disks of a majority, and so is the queue: no waiter is forgotten.", s.leaderDies},
	}
	for i, c := range chapters {
		t.chapter(i+1, c.title, c.meaning)
		if err := c.tell(ctx); err != nil {
			return fmt.Errorf("chapter %d, %q: %w", i+1, c.title, err)
		}
	}
	t.end("All %d chapters went as told, in %.1f s.", len(chapters), t.elapsed().Seconds())
	return nil
}
