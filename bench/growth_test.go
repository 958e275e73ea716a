package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Every growth gives figures at each size. The sizes here are small ones.
func TestGrowths(t *testing.T) {
	t.Parallel()
	small := map[string][]int{
		"locks": {10, 20}, "sessions": {3, 6}, "waiters": {1, 20}, "voters": {1, 5}, "standbys": {0, 2}, "values": {16, 128 << 10},
	}
	dir := t.TempDir()
	var curves []curve
	lines := 0
	for _, gr := range growths {
		gr.sizes = small[gr.name]
		reported := 0
		c, err := gr.measure(t.Context(), filepath.Join(dir, gr.name), 1, 100*time.Millisecond, func(point) { reported++ })
		if err != nil {
			t.Fatalf("%s: %v", gr.name, err)
		}
		if len(c.points) != len(gr.sizes) || reported != len(gr.sizes) {
			t.Errorf("%s: %d points, %d reported, want %d", gr.name, len(c.points), reported, len(gr.sizes))
		}
		lines += len(c.points)
		curves = append(curves, c)
	}
	figures, chart := filepath.Join(dir, "figures.csv"), filepath.Join(dir, "chart.svg")
	if err := writeFile(figures, curves, writeGrowthCSV); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(chart, curves, writeGrowthSVG); err != nil {
		t.Fatal(err)
	}
	wantFigures(t, figures, lines)
	wantXML(t, chart)
}

func TestRun_Growth(t *testing.T) {
	o := options{growth: "values", growthMax: 1, turns: 1, length: 100 * time.Millisecond, dir: t.TempDir()}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 2+6 || !strings.Contains(out.String(), "128 KiB ") {
		t.Errorf("want a title, a header and 6 sizes:\n%s", &out)
	}
	if left, err := os.ReadDir(o.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestRun_WrongGrowth(t *testing.T) {
	for name, o := range map[string]options{
		"name": {growth: "age", growthMax: 100_000, turns: 1, length: time.Second},
		"size": {growth: "locks", growthMax: 999, turns: 1, length: time.Second},
	} {
		if err := run(t.Context(), o, io.Discard); err == nil {
			t.Errorf("accepted a wrong %s", name)
		}
	}
}

// A group has the members of its shape, in their roles.
func TestStartShape(t *testing.T) {
	g, err := startShape(t.Context(), t.TempDir(), shape{voters: 3, standbys: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	if voters, standbys := g.roles(); voters != 3 || standbys != 2 {
		t.Errorf("%d voters and %d standbys", voters, standbys)
	}
}
