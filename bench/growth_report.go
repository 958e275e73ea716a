package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
)

func runGrowths(ctx context.Context, o options, out io.Writer) error {
	if o.growth == "list" {
		for _, gr := range growths {
			fmt.Fprintf(out, "%-16s %s\n", gr.name, gr.text)
		}
		return nil
	}
	chosen, err := chooseGrowths(o.growth)
	if err != nil {
		return err
	}
	for i, gr := range chosen {
		if chosen[i] = gr.upTo(o.growthMax); len(chosen[i].sizes) == 0 {
			return fmt.Errorf("-growth-max %d: want at least %d for %s", o.growthMax, gr.sizes[0], gr.name)
		}
	}
	var curves []curve
	for _, gr := range chosen {
		fmt.Fprintf(out, "%s\n%12s %10s %9s %9s\n", gr.text, gr.name, "cycles/s", "p50", "p99")
		c, err := gr.measure(ctx, filepath.Join(o.dir, gr.name), o.turns, o.length, func(p point) {
			fmt.Fprintf(out, "%12s %10.0f %9s %9s\n", gr.label(p.x), median(p.figures, rate), short(median(p.figures, p50)), short(median(p.figures, p99)))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", gr.name, err)
		}
		curves = append(curves, c)
	}
	if err := writeFile(o.csv, curves, writeGrowthCSV); err != nil {
		return err
	}
	return writeFile(o.svg, curves, writeGrowthSVG)
}

// label prints x.
func (gr growth) label(x int) string {
	switch {
	case !gr.bytes:
		return grouped(float64(x))
	case x >= 1<<10:
		return fmt.Sprintf("%d KiB", x>>10)
	}
	return fmt.Sprintf("%d B", x)
}

func writeGrowthCSV(to io.Writer, curves []curve) error {
	w := csv.NewWriter(to)
	_ = w.Write([]string{"growth", "x", "turn", "cycles_per_second", "p50_seconds", "p99_seconds", "cpu_seconds_per_cycle"}) // see Error below
	for _, c := range curves {
		for _, p := range c.points {
			for t, f := range p.figures {
				_ = w.Write(append([]string{c.name, strconv.Itoa(p.x), strconv.Itoa(t + 1)}, f.fields()...))
			}
		}
	}
	w.Flush()
	return w.Error()
}
