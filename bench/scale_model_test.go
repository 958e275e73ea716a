package main

import (
	"math"
	"slices"
	"testing"
)

// typicalCosts are about those of a real machine.
func typicalCosts() costs {
	return costs{
		rounds: 2,
		leader: parts{
			looping: {entry: 80, command: 4}, storing: {entry: 20, shared: 5, command: 0.2}, connecting: {entry: 60, shared: 30, command: 0.1},
			calling: {command: 3}, remaining: {entry: 80, shared: 60, command: 1},
		},
		follower: parts{
			looping: {entry: 50, command: 2}, storing: {entry: 20, shared: 5, command: 0.2}, connecting: {entry: 40, shared: 20, command: 0.1},
			remaining: {entry: 60, shared: 40, command: 0.5},
		},
	}
}

// More cores, groups with as many callers each, or a faster disk make nothing slower.
func TestEstimate_Monotonic(t *testing.T) {
	c := typicalCosts()
	for _, sync := range []float64{0, 100, 1000, 10_000} {
		for _, callers := range []float64{1, 4, 64, 1024} {
			for i, groups := range modelledGroups {
				for j, cores := range modelledCores {
					at := func(i, j int, sync float64) float64 {
						return c.estimate(hosting{procs: modelledCores[j], sync: sync}, load{modelledGroups[i], callers}).cycles
					}
					is := at(i, j, sync)
					if is <= 0 || math.IsInf(is, 0) || math.IsNaN(is) {
						t.Fatalf("%v cycles a second", is)
					}
					if i > 0 && is < 0.999*at(i-1, j, sync) || j > 0 && is < 0.999*at(i, j-1, sync) || is < 0.999*at(i, j, 2*sync) {
						t.Errorf("%d groups of %v callers on %v cores, a sync of %v: %.0f, less than with fewer groups or cores or a slower disk", groups, callers, cores, sync, is)
					}
				}
			}
		}
	}
}

// Each bottleneck is reached, and what relieves it is its own.
func TestEstimate_Bottlenecks(t *testing.T) {
	slow := typicalCosts()
	slow.leader[storing].entry, slow.follower[storing].entry = 200, 200
	for _, test := range []struct {
		costs costs
		at    hosting
		load  load
		want  bottleneck
	}{
		{typicalCosts(), hosting{procs: 64, sync: 100}, load{1, 1}, byCallers},
		{typicalCosts(), hosting{procs: 64}, load{1, 1024}, byLoop},
		{typicalCosts(), hosting{procs: 64, sync: 5000}, load{8, 64}, bySync},
		{typicalCosts(), hosting{procs: 4}, load{64, 64}, byProcessors},
		{typicalCosts(), hosting{procs: 64, shared: 2}, load{8, 64}, byProcessors},
		{slow, hosting{procs: 64}, load{64, 4}, byStorage},
	} {
		if e := test.costs.estimate(test.at, test.load); e.by != test.want {
			t.Errorf("%+v with %+v: bound by %s, want %s", test.at, test.load, e.by, test.want)
		}
	}
}

// The rates are those that a reader computes by hand.
func TestEstimate_ByHand(t *testing.T) {
	c := costs{rounds: 2, leader: parts{looping: {entry: 100, command: 10}}}
	for _, test := range []struct {
		at   hosting
		load load
		want float64
	}{
		// 10 commands, so 200 µs: 5,000 entries a second, 50,000 commands.
		{hosting{procs: 4}, load{1, 20}, 25_000},
		// One core for three groups that the member leads of eight: 600 µs for an entry of each.
		{hosting{procs: 1}, load{8, 20}, 8 * 25_000 / 3.0},
		// A caller alone: 110 µs for each of two commands and as long again for the sync.
		{hosting{procs: 4, sync: 110}, load{1, 1}, 1e6 / 440},
		// Two groups alternate: each has one write of two.
		{hosting{procs: 4, sync: 1000}, load{2, 20}, 2 * 10 * 500 / 2},
		{hosting{procs: 4, sync: 1000}, load{64, 20}, 64 * 10 * 500 / 2},
	} {
		if got := c.estimate(test.at, test.load).cycles; math.Abs(got/test.want-1) > 0.001 {
			t.Errorf("%+v with %+v: %.0f cycles a second, want %.0f", test.at, test.load, got, test.want)
		}
	}
	if got := c.cycle(load{1, 20}); got != 40 {
		t.Errorf("a cycle costs %v µs, want 40", got)
	}
	if e := (costs{rounds: 1}).estimate(hosting{procs: 1}, load{1, 1}); e.cycles != 0 {
		t.Errorf("%v cycles a second of what was not measured", e.cycles)
	}
}

func TestPart_Shared(t *testing.T) {
	p := part{entry: 10, shared: 8, command: 1}
	for together, want := range map[float64]float64{1: 15, 2: 11, 8: 8} {
		if got := p.of(5, together); got != want {
			t.Errorf("%v together: %v, want %v", together, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	line := func(entry, command float64, sizes ...float64) (runs []measured) {
		for _, k := range sizes {
			runs = append(runs, measured{k, entry + command*k})
		}
		return runs
	}
	for name, test := range map[string]struct {
		runs []measured
		want part
	}{
		"a line":            {line(100, 3, 4, 16, 64, 256), part{entry: 100, command: 3}},
		"no fixed part":     {line(-20, 3, 10, 1000, 10_000), part{command: 2.8}},
		"no command's part": {line(100, -0.001, 4, 16, 64), part{entry: 100}},
		"one size":          {line(100, 3, 8, 8), part{entry: 124}},
		"no time":           {line(0, 0, 8, 16), part{}},
		"nothing":           {nil, part{}},
	} {
		if got := fit(test.runs); math.Abs(got.entry-test.want.entry) > 0.1 || math.Abs(got.command-test.want.command) > 0.1 {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// syntheticRun is what members with these costs spend.
func syntheticRun(c costs, l load, entries float64) scaleRun {
	k := c.commands(l)
	r := scaleRun{check: check{load: l}, members: newSlice[spent](members), leading: 1, entries: entries, commands: entries * k}
	for i := range r.members {
		for t := range tasks {
			each := c.follower[t].of(k, l.together())
			if l.groups > 1 { // all members lead as many
				each = (c.leader[t].of(k, l.together()) + (members-1)*each) / members
			} else if i == r.leading {
				each = c.leader[t].of(k, 1)
			}
			r.members[i].CPU[t] = entries * each
		}
	}
	return r
}

// The costs are found again in what members with these costs spend.
func TestCostsOf(t *testing.T) {
	want := typicalCosts()
	var single []scaleRun
	for _, callers := range []float64{8, 32, 128, 512} {
		single = append(single, syntheticRun(want, load{1, callers}, 1000))
	}
	several := []scaleRun{syntheticRun(want, load{8, 32}, 3000)}
	got, err := costsOf(single, several)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []load{{1, 1}, {1, 64}, {8, 64}, {64, 16}} {
		a, b := got.cycle(l), want.cycle(l)
		if math.Abs(a/b-1) > 0.01 {
			t.Errorf("%+v: a cycle of %v µs, want %v", l, a, b)
		}
	}
	if math.Abs(got.rounds-want.rounds) > 0.01 || math.Abs(got.leader[remaining].shared-want.leader[remaining].shared) > 5 || got.leader[looping].shared != 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
	// What a run shows during which the leader changed does not count.
	single = append(single, syntheticRun(want, load{1, 64}, 1000))
	single[4].moved, single[4].leading = true, 2
	if again, err := costsOf(single, several); err != nil || math.Abs(again.cycle(load{1, 64})/got.cycle(load{1, 64})-1) > 1e-9 {
		t.Errorf("%+v, want %+v: %v", again, got, err)
	}
	single[0].moved, single[1].moved = true, true
	if _, err := costsOf(single, several); err == nil {
		t.Error("costs although the leader changed in most runs")
	}
}

// What several groups cost more than one, as by other programs of the machine, is nothing that they share.
func TestCosts_ShareNothing(t *testing.T) {
	c := typicalCosts()
	dear := typicalCosts()
	for task := range tasks {
		dear.leader[task].entry *= 2
		for _, each := range []*costs{&c, &dear} {
			each.leader[task].shared, each.follower[task].shared = 0, 0
		}
	}
	c.share([]scaleRun{syntheticRun(dear, load{8, 32}, 1000)})
	for task := range tasks {
		if c.leader[task].shared != 0 {
			t.Errorf("%s: %v shared", taskNames[task], c.leader[task].shared)
		}
	}
}

func TestEvenly(t *testing.T) {
	groups := []string{"a", "b", "c", "d", "e"}
	leaders := map[string]int{"a": 0, "b": 0, "c": 1, "d": 0, "e": 2}
	for n, want := range map[int][]string{1: {"a"}, 3: {"a", "c", "e"}, 5: {"a", "c", "e", "b", "d"}, 9: {"a", "c", "e", "b", "d"}} {
		if got := evenly(groups, leaders, n); !slices.Equal(got, want) {
			t.Errorf("%d of them: %v, want %v", n, got, want)
		}
	}
}

func TestSignificant(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, 7: 7, 1449: 1400, 99_600: 100_000, 123_456: 120_000} {
		if got := significant(x); math.Abs(got-want) > 1e-6 {
			t.Errorf("%v: %v, want %v", x, got, want)
		}
	}
}
