//go:build unix

// Postgres shows a paused lock holder whose late write a PostgreSQL database refuses.
//
//	go -C examples/postgres run .
//
// It needs Go, a Unix system and an installed PostgreSQL (apt-get install postgresql), of which it
// starts a server of its own, in a temporary directory and on a Unix socket. No running server is used or
// changed. As root it runs the server as the user postgres, since PostgreSQL refuses root.
//
// Three more processes are the members of a group: anna, ben and clara. anna acquires the lock
// "invoices", and this process pauses it with SIGSTOP before it writes. Its session expires, and ben is granted
// the lock with a larger fence and writes. Then SIGCONT: anna goes on to write as if no time had passed. The
// write is refused, because fencing.SQL compares the fence in the transaction that writes.
//
//	go -C examples/postgres run . -unfenced
//
// runs the same without the comparison. Then the late write succeeds.
//
// worker.go is the program that uses a lock as yours would, director.go the plot, actor.go a
// worker's process as the director sees it, server.go the database server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// lockName names the lock that protects the table.
const lockName = "invoices"

func main() {
	d, w, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "postgres:", err)
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
		err = d.direct(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "postgres:", err)
		os.Exit(1)
	}
}

// parse returns the director, and the worker that this process is, or one without a
// name for the director's process.
func parse(args []string) (director, worker, error) {
	var unfenced bool
	var w worker
	flags := flag.NewFlagSet("postgres", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), `Postgres shows how a fence protects a PostgreSQL table from a paused lock holder. Run
it without flags, or with -unfenced for the same without the protection:

	go -C examples/postgres run .
	go -C examples/postgres run . -unfenced

It starts its workers with the other flags:`)
		flags.PrintDefaults()
	}
	flags.BoolVar(&unfenced, "unfenced", false, "write without the comparison of fences")
	flags.StringVar(&w.name, "worker", "", "run the worker of this `name`")
	flags.StringVar(&w.dir, "dir", "", "data `directory` of the worker")
	flags.StringVar(&w.join, "join", "", "`address` of another worker")
	flags.StringVar(&w.source, "database", "", "`connection string` of the database")
	_ = flags.Parse(args) // exits on -help and on an error
	w.unfenced = unfenced
	if flags.NArg() > 0 {
		return director{}, w, errors.New("unexpected argument " + flags.Arg(0) + ": run it with -help for all flags")
	}
	return director{unfenced: unfenced}, w, nil
}
