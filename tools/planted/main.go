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

type options struct {
	list, update bool
	only, find   string
	jobs         int
	budget       time.Duration
}

func main() {
	var o options
	flag.BoolVar(&o.list, "list", false, "print the bugs and run nothing")
	flag.BoolVar(&o.update, "update", false, "rewrite the patches in the names of today; with -find, their tests too")
	flag.StringVar(&o.only, "only", "", "comma-separated names: these bugs only")
	flag.StringVar(&o.find, "find", "", "comma-separated names: search for a test that kills each")
	flag.IntVar(&o.jobs, "j", max(1, runtime.NumCPU()/2), "how many bugs at a time")
	flag.DurationVar(&o.budget, "timeout", time.Minute, "how long the test of one bug may run, build excluded; with -find, the tests of one package")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run reports whether all bugs fit, and where they were run, were killed.
func (o options) run(ctx context.Context) (bool, error) {
	root, err := repositoryRoot(".")
	if err != nil {
		return false, err
	}
	t, err := loadTree(root)
	if err != nil {
		return false, err
	}
	names := o.only
	if o.find != "" {
		names = o.find
	}
	bugs, err := choose(t.table.bugs, names)
	if err != nil {
		return false, err
	}
	switch {
	case o.list:
		printTable(os.Stdout, bugs)
		return true, nil
	case o.update && o.find == "":
		return t.update(bugs)
	}
	g, err := newGround(root, o.budget)
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(g.scrap)
	if o.find != "" {
		return t.findKillers(ctx, g, bugs, o.update)
	}
	results, err := g.plantAll(ctx, bugs, t.table, o.jobs)
	if err != nil {
		return false, err
	}
	return printResults(os.Stdout, results), nil
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
			return nil, fmt.Errorf("no bug %q: -list prints the names", name)
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
	fmt.Fprintf(columns, "\nbug\tverdict\ttook\tby\tcause\n")
	for _, r := range results {
		counts[r.verdict]++
		fmt.Fprintf(columns, "%s\t%s\t%.1fs\t%s\t%s\n", r.name, r.verdict, r.took.Seconds(), r.test, r.line)
	}
	columns.Flush()
	fmt.Fprintf(w, "\n%d of %d planted bugs killed, %d survived, %d broken\n",
		counts[killed], len(results), counts[survived], counts[broken])
	return counts[killed] == len(results)
}
