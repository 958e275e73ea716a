// Command bench compares conclave with a peer, which is an embedded etcd, side by side in
// one process: three members of each, connected by TCP on loopback, with fsync, on one disk.
// Each workload runs by turns, conclave, etcd, conclave, etcd, and each pair of turns gives a
// ratio, so that what else the machine does disturbs both alike. With -memory conclave
// without a directory takes turns with them, as a column of its own, and with -ceiling
// conclave's member with an empty machine.
//
// The columns cpu/op are the processor time for an operation: the user and system time of the
// process in a turn (getrusage) by the operations of the turn. It is that of all three members and of
// the callers, and of what the idle members of the other columns use meanwhile, which is little where
// the operations are many. Of ZooKeeper, whose members are other processes, it is not measured.
//
// With -peer zookeeper the peer is three servers of ZooKeeper: processes with a JVM each, on
// the same processors. Their clients are in this process and connect to them by TCP, whereas
// etcd's client calls its member's functions.
//
//	cd bench && go run . -workload all
//	cd bench && go run . -workload own-64,shared-16 -turns 9 -for 3s
//	cd bench && go run . -peer zookeeper -workload all
//	cd bench && go run . -growth all
//	cd bench && go run . -idle 10s
//	cd bench && go run . -path 2s
//	cd bench && go run . -scale 2s
//	go -C cmd/conclave build -o /tmp/conclave . && go -C bench run . -footprint 30s -agent /tmp/conclave
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type options struct {
	workloads string
	turns     int
	length    time.Duration
	dir       string
	ceiling   bool
	memory    bool
	csv, svg  string
	peer      string
	warm      time.Duration
	profile   string
	growth    string
	growthMax int
	idle      time.Duration
	held      bool
	groups    int
	path      time.Duration
	footprint time.Duration
	rate      int
	agent     string
	scale     time.Duration
}

func main() {
	if os.Getenv(memberVariable) != "" {
		exit(serveMember(os.Stdin, os.Stdout))
		return
	}
	var o options
	flag.StringVar(&o.workloads, "workload", "all", "comma-separated `names` of workloads, or all; list prints them")
	flag.IntVar(&o.turns, "turns", 5, "pairs of turns per workload, 1 to 101")
	flag.DurationVar(&o.length, "for", 1500*time.Millisecond, "length of a turn, 100ms to 1m; a quarter of it is added for warming up")
	flag.StringVar(&o.dir, "dir", "", "`directory` for the members' data (default: a new one in the directory for temporary files)")
	flag.BoolVar(&o.ceiling, "ceiling", false, "a column for conclave's member with an empty machine: raft, Pebble, transport and loop alone")
	flag.BoolVar(&o.memory, "memory", false, "a column for conclave with its members' data in memory as well")
	flag.StringVar(&o.csv, "csv", "", "`file` for the figures of each turn")
	flag.StringVar(&o.svg, "svg", "", "`file` for a chart of the ratios, or of -growth")
	flag.StringVar(&o.peer, "peer", "etcd", "`name` of what conclave is compared with: etcd, in this process, with a client that has no connections; zookeeper, three processes with a JVM each on the same processors, with clients that connect by TCP (apt-get install zookeeper); or none")
	flag.DurationVar(&o.warm, "warm", 20*time.Second, "how long each workload runs on zookeeper before the first turn: until then its JVMs have not compiled what they run; at most 10m")
	flag.StringVar(&o.profile, "cpuprofile", "", "`file` for a CPU profile of conclave's turns, or of -idle")
	flag.StringVar(&o.growth, "growth", "", "instead of workloads, measure conclave while something grows: comma-separated `names`, or all; list prints them")
	flag.IntVar(&o.growthMax, "growth-max", 100_000, "largest `number` of locks, sessions and so on with -growth; a million locks take a minute")
	flag.IntVar(&o.groups, "groups", 0, "with -idle, further `groups` that no caller uses either, 0 to 1000; the measurement begins when they have become quiet")
	flag.BoolVar(&o.held, "held", false, "with -groups, one lock is held in each further group, so that none is quiet")
	flag.DurationVar(&o.idle, "idle", 0, "instead of workloads, measure for so long what a group of three costs that no caller uses")
	flag.DurationVar(&o.path, "path", 0, "instead of workloads, follow the calls of a lone caller through the goroutines for so long; with -memory, of members without a directory")
	flag.DurationVar(&o.footprint, "footprint", 0, "instead of workloads, measure the disk and memory of three members while a client locks and unlocks for so long; a quarter of it is added without calls; needs -agent")
	flag.IntVar(&o.rate, "rate", 1000, "`calls` a second with -footprint, 2 to 100000")
	flag.StringVar(&o.agent, "agent", "", "`file` of the program conclave, which runs the members of -footprint")
	flag.DurationVar(&o.scale, "scale", 0, "instead of workloads, measure what an entry costs, model more groups on more cores, and check that with runs of so long; 100ms to 10s, as 1500ms")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, o, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "conclave-bench-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.dir)
	}
	switch {
	case o.footprint > 0:
		return runFootprint(ctx, o, out)
	case o.scale > 0:
		return runScale(ctx, o, out)
	case o.path > 0:
		return runPath(ctx, o, out)
	case o.idle > 0:
		return runIdle(ctx, o, out)
	case o.growth != "":
		return runGrowths(ctx, o, out)
	}
	return runWorkloads(ctx, o, out)
}

func (o options) check() error {
	unlike := o.idle > 0 || o.growth != "" || o.path > 0 || o.footprint > 0 || o.scale > 0
	switch {
	case o.scale != 0 && (o.scale < 100*time.Millisecond || o.scale > 10*time.Second):
		return fmt.Errorf("-scale %v: want 100ms to 10s", o.scale)
	case o.scale > 0 && (o.footprint > 0 || o.idle > 0 || o.growth != "" || o.path > 0 || o.csv != "" || o.svg != ""):
		return errors.New("-scale prints tables, and none of -footprint, -growth, -idle and -path goes with it: want no other of them, and no -csv and -svg")
	case o.footprint < 0 || o.footprint > time.Hour:
		return fmt.Errorf("-footprint %v: want at most 1h", o.footprint)
	case o.footprint > 0 && (o.idle > 0 || o.growth != "" || o.path > 0 || o.csv != "" || o.svg != ""):
		return errors.New("-footprint prints text, and none of -growth, -idle and -path goes with it: want no other of them, and no -csv and -svg")
	case o.footprint > 0 && o.agent == "":
		return errors.New("-footprint: want -agent, the program that runs the members")
	case o.footprint > 0 && (o.rate < 2 || o.rate > 100_000):
		return fmt.Errorf("-rate %d: want 2 to 100000", o.rate)
	case o.groups < 0 || o.groups > 1000 || o.groups > 0 && o.idle == 0:
		return fmt.Errorf("-groups %d: want 0 to 1000, with -idle", o.groups)
	case o.held && o.groups == 0:
		return errors.New("-held is for -groups: want their number, with -idle")
	case o.idle < 0 || o.idle > time.Hour:
		return fmt.Errorf("-idle %v: want at most 1h", o.idle)
	case o.path < 0 || o.path > time.Minute: // the trace is in memory: 3 MB a second
		return fmt.Errorf("-path %v: want at most 1m", o.path)
	case o.idle > 0 && (o.growth != "" || o.path > 0), o.growth != "" && o.path > 0:
		return errors.New("-growth, -idle and -path: want one of them")
	case unlike && (o.ceiling || o.profile != "" && o.idle == 0 || o.memory && o.path == 0):
		return errors.New("-ceiling, -memory and -cpuprofile are for workloads, -memory for -path as well, and -cpuprofile for -idle: want none of them otherwise")
	case (o.idle > 0 || o.path > 0) && o.svg != "":
		return errors.New("-idle and -path have no chart: want no -svg")
	case o.path > 0 && o.csv != "":
		return errors.New("-path prints text: want no -csv")
	case flag.NArg() > 0:
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	case o.turns < 1 || o.turns > 101:
		return fmt.Errorf("-turns %d: want 1 to 101", o.turns)
	case o.length < 100*time.Millisecond || o.length > time.Minute:
		return fmt.Errorf("-for %v: want 100ms to 1m", o.length)
	case o.warm < 0 || o.warm > 10*time.Minute:
		return fmt.Errorf("-warm %v: want at most 10m", o.warm)
	}
	return nil
}

func runWorkloads(ctx context.Context, o options, out io.Writer) (err error) {
	if o.workloads == "list" {
		for _, w := range workloads {
			fmt.Fprintf(out, "%-16s %s\n", w.name, w.text)
		}
		return nil
	}
	chosen, err := choose(o.workloads)
	if err != nil {
		return err
	}
	p, err := newProfile(o.profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	columns, err := systems(o)
	if err != nil {
		return err
	}
	var rows []row
	fmt.Fprint(out, header(columns))
	for i, w := range chosen {
		r, err := compare(ctx, w, columns, filepath.Join(o.dir, fmt.Sprint(i)), o.turns, o.length, p)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		rows = append(rows, r)
		fmt.Fprint(out, r)
	}
	fmt.Fprint(out, shares(rows))
	if err := writeFile(o.csv, rows, writeCSV); err != nil {
		return err
	}
	return writeFile(o.svg, rows, writeSVG)
}

func choose(names string) ([]workload, error) {
	if names == "all" {
		return workloads, nil
	}
	var chosen []workload
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no workload is called %q: -workload list prints them", name)
		}
		chosen = append(chosen, workloads[i])
	}
	return chosen, nil
}

func writeFile[T any](name string, results []T, write func(io.Writer, []T) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f, results), f.Close())
}
