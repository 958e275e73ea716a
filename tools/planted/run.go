package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

type verdict string

const (
	killed   verdict = "killed"
	survived verdict = "SURVIVED"
	broken   verdict = "BROKEN"
)

type result struct {
	bug
	verdict verdict
	took    time.Duration
	line    string // the first that describes the failure
}

// building is what a run may take beyond the test's budget.
const building = 15 * time.Minute

// ground is where bugs are planted: a copy of the repository, which does not
// change. An overlay adds one bug.
type ground struct {
	root   string // of the copy
	scrap  string // for overlays
	budget time.Duration
}

// newGround copies the repository into a temporary directory. The caller
// removes ground.scrap.
func newGround(root string, budget time.Duration) (*ground, error) {
	dir, err := os.MkdirTemp("", "planted-")
	if err != nil {
		return nil, err
	}
	g := &ground{root: filepath.Join(dir, "repository"), scrap: dir, budget: budget}
	if err := copyRepository(root, g.root); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return g, nil
}

// plantAll runs the bugs, jobs at a time, and prints each verdict as it comes.
func (g *ground) plantAll(ctx context.Context, bugs []bug, t *table, jobs int) ([]result, error) {
	faults, err := g.baseline(ctx, bugs)
	if err != nil {
		return nil, err
	}
	results := make([]result, len(bugs))
	next := make(chan int)
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(func() {
			for i := range next {
				results[i] = g.try(ctx, bugs[i], t, faults)
				fmt.Printf("%-28s %-8s %5.1fs\n", bugs[i].name, results[i].verdict, results[i].took.Seconds())
			}
		})
	}
	for i := range bugs {
		next <- i
	}
	close(next)
	workers.Wait()
	return results, ctx.Err()
}

// baseline runs the tests without a bug, those of a package together where they
// take no arguments. It returns the failures by batch.
func (g *ground) baseline(ctx context.Context, bugs []bug) (map[string]string, error) {
	runs, patterns := make(map[string]test), make(map[string]string)
	var order []string
	for _, b := range bugs {
		key := b.test.batch()
		if _, known := runs[key]; !known {
			runs[key], order = b.test, append(order, key)
		} else {
			patterns[key] += "|"
		}
		patterns[key] += b.test.pattern()
	}
	faults := make(map[string]string)
	for _, key := range order {
		out, err := g.run(ctx, runs[key], patterns[key], "")
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			faults[key] = "fails without the bug too: " + cmp.Or(cause(out), err.Error())
			fmt.Printf("without any bug: %s %s\n%s\n", key, patterns[key], out)
		}
	}
	return faults, nil
}

// batch names the run without a bug that t is part of.
func (t test) batch() string { return strings.Join(append([]string{t.pkg}, t.args...), " ") }

// try plants one bug.
func (g *ground) try(ctx context.Context, b bug, t *table, faults map[string]string) (r result) {
	r = result{bug: b, verdict: broken}
	if err := t.faults[b.name]; err != nil {
		r.line, _, _ = strings.Cut(err.Error(), "\n")
		return r
	}
	if r.line = faults[b.test.batch()]; r.line != "" {
		return r
	}
	overlay, err := g.lay(t.found[b.name])
	if err != nil {
		r.line = err.Error()
		return r
	}
	began := time.Now()
	out, err := g.run(ctx, b.test, b.test.pattern(), overlay)
	r.took = time.Since(began)
	r.verdict, r.line = judge(out, err)
	return r
}

// lay writes the changed file beside the copy, and an overlay that puts it in
// the place of the original.
func (g *ground) lay(p planted) (overlay string, err error) {
	file := filepath.Join(g.scrap, p.name+".go")
	replace := map[string]map[string]string{"Replace": {filepath.Join(g.root, filepath.FromSlash(p.file)): file}}
	list, err := json.Marshal(replace)
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(g.scrap, p.name+".json")
	if err := os.WriteFile(overlay, list, 0o644); err != nil {
		return "", err
	}
	return overlay, os.WriteFile(file, []byte(p.changed), 0o644)
}

// run runs a test in the copy; an empty pattern is all of them. -trimpath keeps
// the name of the copy out of the compiled code, so that the build cache serves
// the next run too.
func (g *ground) run(ctx context.Context, t test, pattern, overlay string, flags ...string) (out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.budget+building)
	defer cancel()
	args := []string{"test", "-trimpath", "-vet=off", "-ldflags=-w", "-count=1", "-failfast", "-timeout", g.budget.String(), "-run", pattern}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	args = append(append(args, flags...), t.pkg)
	cmd := exec.CommandContext(ctx, "go", append(args, t.args...)...)
	cmd.Dir = g.root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("go test, build included: %w", ctx.Err())
	}
	return string(text), err
}

// judge distinguishes a test that failed from one that did not run.
func judge(out string, err error) (verdict, string) {
	switch {
	case strings.Contains(out, "[no tests to run]"):
		return broken, "there is no such test"
	case err == nil:
		return survived, ""
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		return broken, "does not compile: " + cause(out)
	case !strings.Contains(out, "FAIL"):
		return broken, err.Error()
	}
	return killed, cause(out)
}

// cause is the first line of a failure that describes it.
func cause(out string) string {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		noise := line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "===")
		if noise {
			continue
		}
		if runes := []rune(line); len(runes) > 90 {
			return string(runes[:90]) + "…"
		}
		return line
	}
	return ""
}
