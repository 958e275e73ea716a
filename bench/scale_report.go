package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"time"
)

// The cells of the tables that are modelled.
var (
	modelledGroups = []int{1, 2, 4, 8, 16, 32, 64}
	modelledCores  = []float64{4, 8, 16, 32, 64}
)

func reportScale(out io.Writer, results []scaleResult) {
	reportCosts(out, results)
	for i, r := range results {
		text := fmt.Sprintf("data %s, a sync of %d µs", r.place.name, r.alone.Microseconds())
		reportModel(out, text+", 64 callers for each group", r.costs, r.alone, func(groups int) load { return load{groups, 64} })
		if i == 0 {
			reportModel(out, text+", 1,024 callers in all", r.costs, r.alone, func(groups int) load { return load{groups, 1024 / float64(groups)} })
		}
	}
	reportChecks(out, results)
}

// reportCosts prints the inputs of the model.
func reportCosts(out io.Writer, results []scaleResult) {
	fmt.Fprint(out, "\nMeasured: µs of a processor for an entry + for each command in it, and how much of the entry's several groups share\n\n| |")
	for _, r := range results {
		fmt.Fprintf(out, " data %s: leader | follower | shared |", r.place.name)
	}
	fmt.Fprint(out, "\n|---|")
	for range results {
		fmt.Fprint(out, "---|---|---|")
	}
	fmt.Fprintln(out)
	for t := range tasks {
		fmt.Fprintf(out, "| %s |", taskNames[t])
		for _, r := range results {
			leader := r.costs.leader[t]
			fmt.Fprintf(out, " %s | %s | %.0f %% |", leader, r.costs.follower[t], 100*leader.shared/max(leader.entry, 1e-9))
		}
		fmt.Fprintln(out)
	}
	lines := []struct {
		text  string
		value func(r scaleResult) string
	}{
		{"a synced write waits for the disk: of one member; of three at once", func(r scaleResult) string {
			return fmt.Sprintf("%d; %d", r.alone.Microseconds(), r.together.Microseconds())
		}},
		{"callers of a group for each command of an entry", func(r scaleResult) string { return fmt.Sprintf("%.1f", r.costs.rounds) }},
	}
	for _, line := range lines {
		fmt.Fprintf(out, "| %s |", line.text)
		for _, r := range results {
			fmt.Fprintf(out, " %s | | |", line.value(r))
		}
		fmt.Fprintln(out)
	}
}

func (p part) String() string { return fmt.Sprintf("%.0f + %.1f", p.entry, p.command) }

func reportModel(out io.Writer, text string, c costs, sync time.Duration, of func(groups int) load) {
	fmt.Fprintf(out, "\nModelled: cycles a second, %s, members on machines of their own\n\n| groups |", text)
	for _, cores := range modelledCores {
		fmt.Fprintf(out, " %.0f cores |", cores)
	}
	fmt.Fprint(out, "\n|---|---|---|---|---|---|\n")
	for _, groups := range modelledGroups {
		fmt.Fprintf(out, "| %d |", groups)
		for _, cores := range modelledCores {
			e := c.estimate(hosting{procs: cores, sync: micro(sync)}, of(groups))
			fmt.Fprintf(out, " %s %s |", grouped(significant(e.cycles)), e.by)
		}
		fmt.Fprintln(out)
	}
}

func micro(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// significant rounds to two digits: the model has no more.
func significant(x float64) float64 {
	if x <= 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return math.Round(x/unit) * unit
}

// reportChecks compares the model with runs on this machine, whose members share its cores and its disk.
func reportChecks(out io.Writer, results []scaleResult) {
	fmt.Fprintf(out, "\nChecked: three members in processes of their own that share %d processors and the disk\n\n", runtime.NumCPU())
	fmt.Fprint(out, "| data | GOMAXPROCS | callers | groups | commands in an entry: measured, modelled | synced writes for an entry | µs of a processor for a cycle: measured, modelled | processors used: by members, by other programs"+
		" | cycles/s: measured | modelled | ratio |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		for _, run := range r.checks {
			fmt.Fprintln(out, r.compare(run))
		}
	}
}

// compare returns the line of a run. Its ratio is measured by modelled.
func (r scaleResult) compare(run scaleRun) string {
	l := run.load
	e := r.costs.estimate(r.machine(run), l)
	moved := ""
	if run.moved {
		moved = ", a leader changed"
	}
	used := run.cpu()
	return fmt.Sprintf("| %s | %d | %.0f | %d | %.1f, %.1f | %.2f | %.0f, %.0f | %.1f, %.1f | %s | %s %s | %.2f%s |", r.place.name, run.procs, l.callers*float64(l.groups), l.groups,
		run.commands/run.entries, r.costs.commands(l), run.synced()/members/run.entries, commandsOfCycle*used/run.commands, r.costs.cycle(l), used/micro(run.length), run.others,
		grouped(run.cycles), grouped(significant(e.cycles)), e.by, run.cycles/e.cycles, moved)
}

// machine is this one, as a member has it in a run: without what other programs used of it.
func (r scaleResult) machine(run scaleRun) hosting {
	const least = 0.1 // processors: others leave some
	return hosting{procs: float64(run.procs), shared: max(least, float64(runtime.NumCPU())-run.others), sync: micro(r.together)}
}
