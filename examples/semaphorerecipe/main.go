// Semaphorerecipe builds a semaphore as Consul's guide does, out of sessions and
// keys alone, and plays a story with it in which one holder dies:
//
//	go run ./examples/semaphorerecipe
//
// You do not need any of this to limit something: Node.Semaphore does it in one
// call, is served in order, and gives each holder a fence, which the recipe lacks.
// It is here to show what sessions and keys can do together: a key that goes with
// its session, compare-and-swap, and watching instead of asking again and again.
//
// Three members run in this one process, only so that one command shows them all.
// It exits with status 1 as soon as anything goes otherwise than told.
//
// Read contender.go for the recipe, slots.go for the key that says who holds a
// slot, group.go for how members are started and killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"
)

const (
	// prefix, limit and the name of the lock key are what all have to agree on.
	prefix = "service/reports/lock"
	limit  = 2

	patience = 30 * time.Second // after which something must be wrong
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "semaphorerecipe: it went otherwise:", err)
		os.Exit(1)
	}
}

// teller prints who does what, with the time since the beginning.
type teller func(who, format string, args ...any)

func newTeller(w io.Writer) teller {
	var mu sync.Mutex // one line at a time
	began := time.Now()
	return func(who, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%7.2f s   %-9s %s\n", time.Since(began).Seconds(), who, fmt.Sprintf(format, args...))
	}
}

func run(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	say := newTeller(w)
	nodes, err := openGroup(ctx, "anna", "ben", "clara")
	defer kill(nodes...) // nobody is left to take leave of
	if err != nil {
		return err
	}
	say("the group", "has formed: anna, ben and clara; %d of them may hold a slot at a time", limit)
	var all []*contender
	for _, n := range nodes {
		c, err := contend(ctx, n, say)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	return play(ctx, all[0], all[1], all[2], say)
}

// play has anna die with a slot, an operator take ben's away, and clara wait.
func play(ctx context.Context, anna, ben, clara *contender, say teller) error {
	if err := errors.Join(anna.acquire(ctx), ben.acquire(ctx)); err != nil {
		return err
	}
	waiting := make(chan error, 1)
	go func() { waiting <- clara.acquire(ctx) }()
	if err := clara.isWaiting(ctx); err != nil {
		return err
	}
	say("anna", "is killed, without farewell. Her session ends when it has been silent for %v", sessionTTL)
	kill(anna.node)
	if err := <-waiting; err != nil {
		return err
	}

	lost := make(chan error, 1)
	go func() { lost <- ben.untilLost(ctx) }()
	say("operator", "takes ben's slot away, by taking him off the list")
	if err := clara.evict(ctx, ben.id()); err != nil {
		return err
	}
	if err := <-lost; err != nil {
		return err
	}
	if err := ben.acquire(ctx); err != nil { // a slot is free, so he may have it back
		return err
	}
	if err := errors.Join(ben.release(ctx), clara.release(ctx)); err != nil {
		return err
	}
	return clara.nothingLeft(ctx)
}
