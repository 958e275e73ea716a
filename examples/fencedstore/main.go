//go:build unix

// Fencedstore shows why a lock alone does not protect a resource, and how the
// fence does. A holder is paused between the check that it holds the lock and its
// write, for longer than its session TTL. The lock is granted to another holder,
// which writes. Then the first holder continues as if no time had passed. No lock
// can prevent its late write, but the store can: it checks the fence.
//
//	go run ./examples/fencedstore
//
// Four processes take part. This one is the director and runs the store, which
// speaks HTTP and knows nothing of locks but the fence that comes with each
// write. It starts three workers, which are the members of the group, and pauses
// one of them with a real SIGSTOP. So it needs a Unix system; elsewhere it
// compiles and reports that.
//
// store.go is the protected resource, worker.go the program that uses a lock as
// yours would, director.go the plot, actor.go a worker's process as the director
// sees it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// lockName names the lock, and the value in the store that it protects.
const lockName = "orders"

func main() {
	w, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencedstore:", err)
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // ends a story that hangs
	defer cancel()
	if w.name != "" {
		// Ctrl-C reaches all processes of a terminal. A worker leaves it to the
		// director, which ends the workers.
		signal.Ignore(os.Interrupt)
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

// parse returns the worker that this process is, or one without a name for the
// director.
func parse(args []string) (worker, error) {
	var w worker
	flags := flag.NewFlagSet("fencedstore", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), `Fencedstore shows how a fence protects a store from a paused lock holder. Run it
without flags:

	go run ./examples/fencedstore

It starts its workers with these flags:`)
		flags.PrintDefaults()
	}
	flags.StringVar(&w.name, "worker", "", "run the worker of this `name`")
	flags.StringVar(&w.dir, "dir", "", "data `directory` of the worker")
	flags.StringVar(&w.join, "join", "", "`address` of another worker")
	flags.StringVar(&w.store, "store", "", "`URL` of the store")
	flags.BoolVar(&w.pauses, "pause", false, "pause between the check of the lock and the write")
	_ = flags.Parse(args) // exits on -help and on an error
	if flags.NArg() > 0 {
		return w, fmt.Errorf("unexpected argument %q: run it with -help for all flags", flags.Arg(0))
	}
	return w, nil
}
