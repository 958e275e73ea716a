//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// insideMain is the tool in its namespaces: it runs the group and the nemeses, and
// prints the table.
func insideMain(args []string) int {
	o, err := parseOptions(args, os.Stderr)
	if err != nil {
		return fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &runner{o: o, began: time.Now()}
	if err := r.prepare(); err != nil {
		return fail(err)
	}
	defer r.resource.close()
	defer r.group.end()
	err = r.run(ctx)
	printTable(os.Stdout, r.rows)
	printFindings(os.Stdout, r.rows)
	switch {
	case violated(r.rows):
		return exitViolation
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "chaos: interrupted")
		return exitInterrupted
	case err != nil:
		return fail(err)
	}
	return 0
}

// runner runs the nemeses one after the other against one group. A group that does not
// recover is a violation, and the next nemesis gets a new one.
type runner struct {
	o          options
	began      time.Time
	group      *group
	resource   *resource
	generation int               // of the group; 0: none has been formed
	largest    map[string]uint64 // the largest fence that each group has granted
	late       []*operation      // deletions of groups in earlier phases that may take effect yet
	rows       []row
}

func (r *runner) prepare() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := isolateMounts(); err != nil {
		return err
	}
	w, err := newNetwork(r.o.members + spares)
	if err != nil {
		return fmt.Errorf("make the network: %w", err)
	}
	socket := filepath.Join(r.o.dir, "resource")
	if r.resource, err = newResource(socket); err != nil {
		return err
	}
	r.group, err = newGroup(r.o, w, self, socket, r.trace)
	return err
}

// trace prints a fault with -v.
func (r *runner) trace(format string, args ...any) {
	if r.o.verbose {
		r.log(format, args...)
	}
}

func (r *runner) log(format string, args ...any) {
	fmt.Printf("%8.2fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

func (r *runner) run(ctx context.Context) error {
	r.log("%d members, %d groups, %d operations per second wanted, seed %d", r.o.members, r.o.groups, r.o.rate, r.o.seed)
	for i, n := range r.o.nemeses {
		if r.generation == 0 || r.group.ill(0) != "" {
			if err := r.form(ctx); err != nil {
				return err
			}
		}
		row, err := r.phase(ctx, fmt.Sprintf("%02d-%s", i+1, n.name), n)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		r.rows = append(r.rows, row)
		r.log("%s", row.summary())
	}
	return nil
}

// form forms a new group.
func (r *runner) form(ctx context.Context) error {
	r.group.end()
	r.generation++
	r.largest, r.late = make(map[string]uint64), nil
	if err := r.group.form(ctx, r.generation); err != nil {
		return fmt.Errorf("form a group: %w", err)
	}
	r.log("a group of %d members is formed", r.o.members)
	return nil
}

// warmUp is how long a phase runs without faults first.
const warmUp = 2 * time.Second

// phase runs one nemesis under load, heals, and checks. Its error is one of the tool;
// what the group does wrong is in the row.
func (r *runner) phase(ctx context.Context, name string, n nemesis) (row, error) {
	dir := filepath.Join(r.o.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return row{}, err
	}
	if err := r.resource.begin(filepath.Join(dir, writesFile)); err != nil {
		return row{}, err
	}
	g := r.group
	g.deaths, g.spoiled, g.rolls = nil, nil, nil
	r.log("%s: %s", n.name, n.about)
	result := row{nemesis: n.name, began: now()}
	g.run(dir, fmt.Sprintf("%d-%s", r.generation, name))
	_ = wait(ctx, warmUp) // the caller looks at ctx
	result.before = g.usage()
	inflicting, cancel := context.WithTimeout(ctx, r.o.span)
	err := n.inflict(inflicting, &faults{g, rand.New(rand.NewPCG(r.o.seed, uint64(len(name))))})
	cancel()
	unsupported := errors.Is(err, errUnsupported)
	if unsupported {
		result.unsupported = err.Error()
	}
	if err != nil && !unsupported {
		g.spoiled = append(g.spoiled, err.Error())
	}
	r.recover(ctx, &result)
	result.after = g.usage()
	if err := g.pause(); err != nil {
		g.spoiled = append(g.spoiled, err.Error())
	}
	result.ended = now()
	for _, m := range g.members {
		g.noteUnexpected(m)
	}
	return result, r.check(dir, &result)
}

const writesFile = "resource.json"

// recover heals and waits until the group is healthy under load.
func (r *runner) recover(ctx context.Context, result *row) {
	g := r.group
	r.trace("heal, and wait until the group is healthy")
	healed := now()
	err := g.heal()
	if err == nil {
		err = g.awaitHealthy(ctx, healthyLimit, healed)
	}
	result.recovery = time.Duration(now() - healed)
	if err != nil && ctx.Err() == nil {
		g.spoiled = append(g.spoiled, "after the last fault: "+err.Error())
	}
}

func (r *runner) check(dir string, result *row) error {
	if err := r.resource.end(); err != nil {
		return fmt.Errorf("record of the resource: %w", err)
	}
	ops, err := readHistories(dir)
	if err != nil {
		return err
	}
	writes, err := readWrites(filepath.Join(dir, writesFile))
	if err != nil {
		return err
	}
	began := time.Now()
	result.measure(ops, r.group.deaths)
	result.verdict = checkAll(slices.Concat(r.late, ops), writes, r.largest)
	checkModes(&result.verdict, ops)
	checkLimits(&result.verdict, result)
	checkSetGrants(&result.verdict, result)
	checkWork(&result.verdict, result)
	checkLives(&result.verdict, result)
	checkRolls(&result.verdict, ops, r.group.rolls)
	result.violations = append(result.violations, r.group.spoiled...)
	for group, fence := range largestFences(ops) {
		r.largest[group] = max(r.largest[group], fence)
	}
	r.late = append(r.late, lateDeletions(ops)...)
	r.trace("checked %d operations and %d writes in %v", len(ops), len(writes), time.Since(began).Round(time.Millisecond))
	return nil
}

// checkAgain checks kept histories, without a group.
func checkAgain(dir string) int {
	ops, err := readHistories(dir)
	if err != nil {
		return fail(err)
	}
	writes, err := readWrites(filepath.Join(dir, writesFile))
	if err != nil {
		return fail(err)
	}
	result := row{nemesis: filepath.Base(dir)}
	result.measure(ops, nil)
	result.verdict = checkAll(ops, writes, nil)
	fmt.Printf("%s: %d operations, %d searches, %d given up, %d violations\n",
		result.nemesis, result.operations, result.searches, len(result.verdict.unknown), len(result.violations))
	printFindings(os.Stdout, []row{result})
	if len(result.violations) > 0 {
		return exitViolation
	}
	return 0
}
