package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// growth measures conclave at several sizes of something, x.
type growth struct {
	name  string
	text  string
	sizes []int // of x, ascending
	bytes bool  // x is a number of bytes
	// shape is that of the group for x. nil: one group of three voters takes all sizes.
	shape func(x int) shape
	// begin returns what brings a group to the next size, and returns what to measure there.
	begin func() stage
}

type stage func(ctx context.Context, g *conclaveGroup, x int) (measure, error)

type measure func(ctx context.Context, length time.Duration) (figure, error)

var growths = []growth{
	{name: "locks", text: "own-64 beside held locks", sizes: []int{1000, 10_000, 100_000, 1_000_000}, begin: besideLocks},
	{name: "sessions", text: "own-64 beside sessions, spread over three members", sizes: []int{100, 1000, 10_000, 20_000}, begin: besideMoreSessions},
	{name: "waiters", text: "grants of one lock with waiters; the times are those between two grants", sizes: []int{1, 10, 100, 1000, 10_000}, begin: queueing},
	{name: "voters", text: "own-64 with voters", sizes: []int{1, 3, 5, 7}, shape: withVoters, begin: steady(own(64, atLeader))},
	{name: "standbys", text: "own-64 with three voters and standbys", sizes: []int{0, 1, 2, 4, 8, 16}, shape: withStandbys, begin: steady(own(64, atLeader))},
	{name: "values", text: "put-64 with values of a size", sizes: []int{16, 128, 1 << 10, 8 << 10, 64 << 10, 128 << 10}, bytes: true, begin: withValues},
}

func withVoters(x int) shape   { return shape{voters: x} }
func withStandbys(x int) shape { return shape{voters: members, standbys: x} }

// point is the figures of the turns at one size.
type point struct {
	x       int
	figures []figure
}

// curve is the result of a growth.
type curve struct {
	growth
	points []point
}

// upTo returns the growth without sizes that exceed a bound. Bytes have none: the bound is
// for what takes long to make.
func (gr growth) upTo(bound int) growth {
	if !gr.bytes {
		gr.sizes = slices.DeleteFunc(slices.Clone(gr.sizes), func(x int) bool { return x > bound })
	}
	return gr
}

func chooseGrowths(names string) ([]growth, error) {
	if names == "all" {
		return growths, nil
	}
	var chosen []growth
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(growths, func(gr growth) bool { return gr.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no growth is called %q: -growth list prints them", name)
		}
		chosen = append(chosen, growths[i])
	}
	return chosen, nil
}

// measure calls each with every point as soon as it is measured.
func (gr growth) measure(ctx context.Context, dir string, turns int, length time.Duration, each func(point)) (curve, error) {
	c := curve{growth: gr}
	defer func() { _ = os.RemoveAll(dir) }() // of this program
	begin := gr.begin()
	var g *conclaveGroup
	defer func() {
		if g != nil {
			g.close()
		}
	}()
	for _, x := range gr.sizes {
		if g != nil && gr.shape != nil {
			g.close()
			g = nil
		}
		if g == nil {
			var err error
			if g, err = startShape(ctx, filepath.Join(dir, fmt.Sprint(x)), gr.shapeAt(x)); err != nil {
				return c, fmt.Errorf("start with %d: %w", x, err)
			}
		}
		p, err := measurePoint(ctx, g, begin, x, turns, length)
		if err != nil {
			return c, fmt.Errorf("%d: %w", x, err)
		}
		c.points = append(c.points, p)
		each(p)
	}
	return c, nil
}

// shapeAt returns the group's shape. 10,000 waiters enqueue at once, more than the default
// limit on calls admits.
func (gr growth) shapeAt(x int) shape {
	s := shape{voters: members}
	if gr.shape != nil {
		s = gr.shape(x)
	}
	s.calls = 1 << 16
	return s
}

func measurePoint(ctx context.Context, g *conclaveGroup, begin stage, x, turns int, length time.Duration) (point, error) {
	p := point{x: x}
	measure, err := begin(ctx, g, x)
	if err != nil {
		return p, err
	}
	for range turns {
		f, err := measure(ctx, length)
		if err != nil {
			return p, err
		}
		p.figures = append(p.figures, f)
	}
	return p, nil
}
