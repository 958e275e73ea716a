// Semaphorerecipe builds a semaphore from sessions and keys alone, as Consul's
// guide does, and runs a story with it in which one holder crashes:
//
//	go run ./examples/semaphorerecipe
//
// A program does not need this recipe: Node.Semaphore is one call, serves
// waiters in order, and gives each holder a fence, which the recipe lacks. It
// shows what sessions and keys can do together: a key that is deleted with its
// session, compare-and-swap, and a watch instead of polling.
//
// The three members run in one process only so that one command shows them all.
// The program exits with status 1 if anything differs from the story.
//
// contender.go is the recipe, slots.go the key that lists the holders, group.go
// opens and closes members, cable.go makes one look crashed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"
)

const (
	// All contenders must agree on prefix, limit and the name of the lock key.
	prefix = "service/reports/lock"
	limit  = 2

	storyTimeout = 30 * time.Second // ends a story that hangs
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), `Semaphorerecipe builds a semaphore from sessions and keys. It takes a few seconds
and has no flags:

	go run ./examples/semaphorerecipe`)
	}
	flag.Parse() // exits on -help and on an error
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "semaphorerecipe: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "semaphorerecipe:", err)
		os.Exit(1)
	}
}

// logFunc prints an actor and what it does, with the time since the start.
type logFunc func(actor, format string, args ...any)

func newLog(w io.Writer) logFunc {
	var mu sync.Mutex // one line at a time
	start := time.Now()
	return func(actor, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%7.2f s   %-9s %s\n", time.Since(start).Seconds(), actor, fmt.Sprintf(format, args...))
	}
}

func run(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, storyTimeout)
	defer cancel()
	logf := newLog(w)
	members, err := openGroup(ctx, "anna", "ben", "clara")
	defer closeAll(members)
	if err != nil {
		return err
	}
	logf("group", "has formed: anna, ben and clara; at most %d of them hold a slot at a time", limit)
	var all []*contender
	for _, m := range members {
		c, err := contend(ctx, m, logf)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	return play(ctx, all[0], all[1], all[2], logf)
}

// play crashes anna while it holds a slot and clara waits for one. Then an
// operator revokes ben's slot.
func play(ctx context.Context, anna, ben, clara *contender, logf logFunc) error {
	if err := errors.Join(anna.acquire(ctx), ben.acquire(ctx)); err != nil {
		return err
	}
	waiting := make(chan error, 1)
	go func() { waiting <- clara.acquire(ctx) }()
	if err := clara.awaitWaiting(ctx); err != nil {
		return err
	}
	logf("anna", "is killed, without a graceful shutdown; its session expires after a TTL of %v", sessionTTL)
	anna.member.kill()
	if err := <-waiting; err != nil {
		return err
	}

	lost := make(chan error, 1)
	go func() { lost <- ben.awaitLoss(ctx) }()
	logf("operator", "revokes ben's slot: removes it from the list of holders")
	if err := clara.revoke(ctx, ben.id()); err != nil {
		return err
	}
	if err := <-lost; err != nil {
		return err
	}
	if err := ben.acquire(ctx); err != nil { // a slot is free again
		return err
	}
	if err := errors.Join(ben.release(ctx), clara.release(ctx)); err != nil {
		return err
	}
	return clara.checkEmpty(ctx)
}
