package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/trace"
	"slices"
	"strings"
	"time"
)

// runPath follows the calls of a lone caller through the goroutines of three members, by
// Go's execution trace, and prints the ways that most of them take.
func runPath(ctx context.Context, o options, out io.Writer) error {
	dir := filepath.Join(o.dir, "path")
	defer func() { _ = os.RemoveAll(dir) }() // of this program
	network := &network{logged: true}
	g, err := startShape(ctx, dir, shape{voters: members, memory: o.memory, dial: network.dial, wrap: network.wrap})
	if err != nil {
		return err
	}
	defer g.close()
	leader, err := g.leader(ctx)
	if err != nil {
		return err
	}
	l, err := g.lock(ctx, leader, "path", false)
	if err != nil {
		return err
	}
	if err := followCalls(ctx, l, o.path/4); err != nil {
		return err
	}
	var recorded bytes.Buffer
	if err := trace.Start(&recorded); err != nil {
		return err
	}
	err = followCalls(ctx, l, o.path)
	trace.Stop()
	if err != nil {
		return err
	}
	h, err := readHistory(&recorded)
	if err != nil {
		return fmt.Errorf("read the trace: %w", err)
	}
	fmt.Fprint(out, pathReport("lock", h), "\n", pathReport("unlock", h))
	return nil
}

// followCalls locks and unlocks for a while. Each call is a region of the trace.
func followCalls(ctx context.Context, l lock, length time.Duration) error {
	for began := time.Now(); time.Since(began) < length; {
		var err error
		trace.WithRegion(ctx, "lock", func() { err = l.lock(ctx) })
		if err == nil {
			trace.WithRegion(ctx, "unlock", func() { err = l.unlock(context.WithoutCancel(ctx)) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const maxWays = 2 // in a report

// pathReport has the most frequent ways of a kind of call.
func pathReport(kind string, h *history) string {
	byRoles, calls, unexplained := make(map[string][][]step), 0, 0
	for _, c := range h.calls {
		if c.kind != kind {
			continue
		}
		calls++
		way, err := h.way(c)
		if err != nil {
			unexplained++
			continue
		}
		roles := rolesOf(way)
		byRoles[roles] = append(byRoles[roles], way)
	}
	all := slices.SortedFunc(maps.Values(byRoles), func(a, b [][]step) int {
		return cmp.Or(len(b)-len(a), strings.Compare(rolesOf(a[0]), rolesOf(b[0])))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d calls, %d ways, %d calls that the trace does not explain\n", kind, calls, len(all), unexplained)
	for _, ways := range all[:min(maxWays, len(all))] {
		writeWay(&b, ways)
	}
	return b.String()
}

// writeWay writes the means of the steps of ways through the same goroutines: they add up.
func writeWay(b *strings.Builder, ways [][]step) {
	fmt.Fprintf(b, "%d calls in %d steps; means in µs\n", len(ways), len(ways[0]))
	fmt.Fprintf(b, "%-22s %9s %9s %9s %9s\n", "goroutine", "network", "waits", "runs", "system")
	sum := step{role: "sum"}
	for i := range ways[0] {
		s := step{role: ways[0][i].role}
		for _, way := range ways {
			s.add(way[i])
		}
		s = s.by(len(ways))
		sum.add(s)
		b.WriteString(s.String())
	}
	b.WriteString(sum.String())
	fmt.Fprintf(b, "%-22s %9.1f\n", "in all", inMicroseconds(sum.network+sum.waits+sum.runs+sum.system))
}

func rolesOf(way []step) string {
	var names []string
	for _, s := range way {
		names = append(names, s.role)
	}
	return strings.Join(names, ", ")
}

func (s *step) add(other step) {
	s.network += other.network
	s.waits += other.waits
	s.runs += other.runs
	s.system += other.system
}

func (s step) by(n int) step {
	d := time.Duration(n)
	return step{s.role, s.network / d, s.waits / d, s.runs / d, s.system / d}
}

func (s step) String() string {
	return fmt.Sprintf("%-22s %9.1f %9.1f %9.1f %9.1f\n", s.role,
		inMicroseconds(s.network), inMicroseconds(s.waits), inMicroseconds(s.runs), inMicroseconds(s.system))
}

func inMicroseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
