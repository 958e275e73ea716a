package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// scalePlan is what -scale runs.
type scalePlan struct {
	length  time.Duration // of a run
	groups  int           // further groups to create
	single  []load        // of one group, for the costs of an entry and of a command: before the checks and after them
	several load          // for what entries of several groups share
	checks  []check
}

// check is a run that is compared with the model.
type check struct {
	procs int // GOMAXPROCS of each member
	load  load
}

func fullPlan(length time.Duration) scalePlan {
	p := scalePlan{length: length, groups: 8, several: load{8, 32}}
	for _, callers := range []float64{8, 32, 128, 512} {
		p.single = append(p.single, load{1, callers})
	}
	for _, procs := range []int{1, 2, 6} {
		for _, groups := range []int{1, 2, 4, 8} {
			p.checks = append(p.checks, check{procs, load{groups, 64 / float64(groups)}})
		}
	}
	for _, groups := range []int{1, 2, 4} { // as many callers as leave the processors idle
		p.checks = append(p.checks, check{2, load{groups, 4 / float64(groups)}})
	}
	return p
}

// dataPlace is where the members have their data.
type dataPlace struct{ name, dir string }

// inRAM is a file system in memory, where a sync waits for nothing. Only Linux has it.
const inRAM = "/dev/shm"

// runScale measures what an entry costs, models more groups on more cores with it, and checks the model against what this machine
// can run.
func runScale(ctx context.Context, o options, out io.Writer) error {
	fmt.Fprintf(out, "%s, %d processors, %s, load average %s\n", time.Now().UTC().Format("2 January 2006 15:04 UTC"), runtime.NumCPU(), runtime.Version(), loadAverage())
	places := []dataPlace{{"on disk", filepath.Join(o.dir, "scale")}}
	if _, err := os.Stat(inRAM); err == nil {
		dir, err := os.MkdirTemp(inRAM, "conclave-bench-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		places = append(places, dataPlace{"in memory", dir})
	}
	plan := fullPlan(o.scale)
	var results []scaleResult
	for _, p := range places {
		r, err := plan.measure(ctx, p)
		if err != nil {
			return fmt.Errorf("data %s: %w", p.name, err)
		}
		results = append(results, r)
	}
	reportScale(out, results)
	moved := 0
	for _, r := range results {
		for _, run := range r.single {
			if run.moved {
				moved++
			}
		}
	}
	_, err := fmt.Fprintf(out, "\nload average at the end %s; %d runs left out of the costs, as the leader changed meanwhile\n", loadAverage(), moved)
	return err
}

// loadAverage returns what Linux has of it.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	var one, five, fifteen string
	if err == nil {
		_, err = fmt.Sscan(string(text), &one, &five, &fifteen)
	}
	if err != nil {
		return "unknown"
	}
	return one + " " + five + " " + fifteen
}

// scaleResult is what was measured with the data at one place.
type scaleResult struct {
	place           dataPlace
	costs           costs
	alone, together time.Duration // how long a synced write waits for the disk: of one member, of all at once
	single, several []scaleRun    // what the costs are from
	checks          []scaleRun
}

// measure starts members and runs the plan on them.
func (p scalePlan) measure(ctx context.Context, at dataPlace) (r scaleResult, err error) {
	r.place = at
	defer func() { _ = os.RemoveAll(at.dir) }() // of this program
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m, err := startMembers(ctx, at.dir, p.groups)
	if err != nil {
		return r, err
	}
	defer m.close()
	if _, err := m.leaders(ctx); err != nil { // until then the members have other work
		return r, err
	}
	// A new member costs more: its heap is small, and its log has no files to use again.
	if _, err := m.run(ctx, check{runtime.NumCPU(), load{1, warming}}, 2*p.length); err != nil {
		return r, err
	}
	if r.alone, r.together, err = m.sync(p.length / 2); err != nil {
		return r, err
	}
	var single []check
	for _, l := range p.single {
		single = append(single, check{runtime.NumCPU(), l})
	}
	for _, part := range []struct {
		to   *[]scaleRun
		runs []check
	}{{&r.single, single}, {&r.several, []check{{runtime.NumCPU(), p.several}}}, {&r.checks, p.checks}, {&r.single, single}} {
		for _, c := range part.runs {
			one, err := m.run(ctx, c, p.length)
			if err != nil {
				return r, fmt.Errorf("%d groups with %v callers each: %w", c.load.groups, c.load.callers, err)
			}
			*part.to = append(*part.to, one)
		}
	}
	r.costs, err = costsOf(r.single, r.several)
	return r, err
}

// warming is how many callers there are in the run before those that count.
const warming = 256

// costsOf returns what runs of one group show, and runs of several groups for what their entries share. It leaves out those during
// which the leader changed: what is a leader's and what is a follower's is mixed up there.
func costsOf(single, several []scaleRun) (c costs, err error) {
	var rounds []float64
	still := slices.DeleteFunc(slices.Clone(single), func(r scaleRun) bool { return r.moved })
	if 2*len(still) < len(single) {
		return c, errors.New("the group's leader changed again and again while its costs were measured: want a machine that does less")
	}
	single = still
	for _, r := range single {
		rounds = append(rounds, r.load.callers*r.entries/r.commands)
	}
	c.rounds = max(1, middle(rounds))
	for t := range tasks {
		var leader, follower []measured
		for _, r := range single {
			for i, s := range r.members {
				m := measured{r.commands / r.entries, s.CPU[t] / r.entries}
				if i == r.leading {
					leader = append(leader, m)
				} else {
					follower = append(follower, m)
				}
			}
		}
		if t == storing { // both write the entry alike
			leader = append(leader, follower...)
			follower = leader
		}
		c.leader[t], c.follower[t] = fit(leader), fit(follower)
	}
	c.share(several)
	return c, nil
}

// share finds what entries of several groups share, which is what they cost less than as many entries of one group.
func (c *costs) share(several []scaleRun) {
	for t := range tasks {
		var saved, most float64
		for _, r := range several {
			k := r.commands / r.entries
			for _, s := range r.members {
				saved -= s.CPU[t]
			}
			saved += r.entries * (c.leader[t].of(k, 1) + (members-1)*c.follower[t].of(k, 1))
			most += r.entries * (c.leader[t].entry + (members-1)*c.follower[t].entry) * (1 - 1/r.load.together())
		}
		if !t.ofHost() || most <= 0 {
			continue
		}
		share := max(0, min(saved/most, 1))
		c.leader[t].shared, c.follower[t].shared = share*c.leader[t].entry, share*c.follower[t].entry
	}
}
