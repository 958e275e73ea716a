// Planted asks whether the tests would notice. It plants one bug at a time in a
// copy of the repository and runs the one test that has to fail because of it.
//
// A bug is killed when that test fails; it survives when the test passes, and
// then a test is missing. It is broken when the table does not fit the source any
// more: the piece of code to be replaced is not there exactly once, the result
// does not compile, there is no such test, or the test fails without the bug too.
//
//	go -C tools run ./planted             all of them
//	go -C tools run ./planted -list       what there is
//	go -C tools run ./planted -only vote-not-synced
//
// The copy is of the working tree as it is, with what is not committed yet. The
// exit status is 1 unless all were killed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	list := flag.Bool("list", false, "print the table and run nothing")
	only := flag.String("only", "", "comma-separated names: plant these only")
	jobs := flag.Int("j", max(1, runtime.NumCPU()/2), "how many bugs at a time")
	budget := flag.Duration("timeout", time.Minute, "how long the test of one bug may run, without what is spent on building")
	flag.Parse()

	bugs, err := choose(table(), *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(2)
	}
	if *list {
		printTable(os.Stdout, bugs)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	results, err := plantAll(ctx, bugs, *jobs, *budget)
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(1)
	}
	if !printResults(os.Stdout, results) {
		os.Exit(1)
	}
}

// choose returns the bugs that are named; all if none is.
func choose(bugs []bug, names string) ([]bug, error) {
	if names == "" {
		return bugs, nil
	}
	var chosen []bug
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(bugs, func(b bug) bool { return b.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no bug %q; -list shows what there is", name)
		}
		chosen = append(chosen, bugs[i])
	}
	return chosen, nil
}

func printTable(w io.Writer, bugs []bug) {
	for _, b := range bugs {
		fmt.Fprintf(w, "%-28s %s\n%28s   %s: %s\n", b.name, b.what, "", b.file, b.test)
	}
}

// printResults reports whether all were killed.
func printResults(w io.Writer, results []result) bool {
	counts := make(map[verdict]int)
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(columns, "\nbug\tverdict\ttook\tby\tsaying\n")
	for _, r := range results {
		counts[r.verdict]++
		fmt.Fprintf(columns, "%s\t%s\t%.1fs\t%s\t%s\n", r.name, r.verdict, r.took.Seconds(), r.test, r.line)
	}
	columns.Flush()
	fmt.Fprintf(w, "\n%d of %d planted bugs killed, %d survived, %d broken\n",
		counts[killed], len(results), counts[survived], counts[broken])
	return counts[killed] == len(results)
}
