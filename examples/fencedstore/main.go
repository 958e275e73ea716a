//go:build unix

// Fencedstore shows why a lock is not enough, and what is. A holder is paused
// right between looking at its lock and writing, for longer than its session
// lives. The lock goes to the next one, which writes. Then the first one wakes up
// and goes on as if no time had passed. No lock can prevent that, but the store
// can: it looks at the fence.
//
//	go run ./examples/fencedstore
//
// Four processes take part. This one is the director and has the store, which
// speaks HTTP and knows nothing of locks but the number that comes with each
// write. It starts three workers, which are the members of the group. A real
// SIGSTOP pauses one of them.
//
// store.go is the protected resource, worker.go the program that uses a lock as
// yours would, director.go the plot.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// lockName is of the lock, and of what it protects.
const lockName = "orders"

func main() {
	var w worker
	flag.StringVar(&w.name, "worker", "", "be a worker of that `name`; the director starts them")
	flag.StringVar(&w.dir, "dir", "", "the worker's `directory`")
	flag.StringVar(&w.join, "join", "", "`address` of another worker")
	flag.StringVar(&w.store, "store", "", "`URL` of the store")
	flag.BoolVar(&w.sleepy, "sleepy", false, "be paused at the worst moment")
	flag.Parse()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // something is wrong then
	defer cancel()
	var err error
	if w.name != "" {
		err = w.run(ctx, os.Stdin, os.Stdout)
	} else {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
		err = direct(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencedstore:", err)
		os.Exit(1)
	}
}
