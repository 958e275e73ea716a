package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// row is the result of a workload: the figures of each turn, by system. A system on which
// the workload does not run has none.
type row struct {
	workload
	systems []system
	figures [][]figure
}

// of returns the figures of a system; none if it is not measured.
func (r row) of(name string) []figure {
	i := slices.IndexFunc(r.systems, func(s system) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return r.figures[i]
}

func header(systems []system) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s", "workload")
	for i, s := range systems {
		separate(&b, i)
		fmt.Fprintf(&b, " %11s %9s %9s %9s", s.name+"/s", "p50", "p99", "cpu/op")
	}
	if compares(systems) {
		fmt.Fprintf(&b, " | %-24s %-8s %-8s %-8s", "ratio (all pairs)", "p50", "p99", "cpu/op")
	}
	return b.String() + "\n"
}

func separate(b *strings.Builder, column int) {
	if column > 0 {
		b.WriteString(" |")
	}
}

func compares(systems []system) bool {
	return peerOf(systems) != ""
}

func (r row) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s", r.name)
	for i, figures := range r.figures {
		separate(&b, i)
		if len(figures) == 0 {
			fmt.Fprintf(&b, " %11s %9s %9s %9s", "-", "-", "-", "-")
			continue
		}
		fmt.Fprintf(&b, " %11.0f %9s %9s %9s", median(figures, rate), short(median(figures, p50)), short(median(figures, p99)), cpuOf(figures))
	}
	if ratios := r.ratios(rate); len(ratios) > 0 {
		fmt.Fprintf(&b, " | %-24s %-8.2f %-8.2f %-8s", fmt.Sprintf("%.2f (%.2f to %.2f)", middle(ratios), slices.Min(ratios), slices.Max(ratios)),
			middle(r.ratios(p50)), middle(r.ratios(p99)), r.cpuRatio())
	} else if compares(r.systems) {
		fmt.Fprintf(&b, " | %-24s %-8s %-8s %-8s", "-", "-", "-", "-")
	}
	return b.String() + "\n"
}

func rate(f figure) float64 { return f.rate }
func p50(f figure) float64  { return f.p50.Seconds() }
func p99(f figure) float64  { return f.p99.Seconds() }
func cpu(f figure) float64  { return f.cpu.Seconds() }

// cpuOf prints the processor time for an operation.
func cpuOf(figures []figure) string {
	if each := median(figures, cpu); each > 0 {
		return short(each)
	}
	return "-"
}

// cpuRatio prints the processor time for an operation of conclave by that of the peer.
func (r row) cpuRatio() string {
	if median(r.of(disk), cpu) > 0 && median(r.of(peerOf(r.systems)), cpu) > 0 {
		return fmt.Sprintf("%.2f", middle(r.ratios(cpu)))
	}
	return "-"
}

// ratios returns a figure of conclave by that of the peer, pair by pair; none if either is not
// measured.
func (r row) ratios(figureOf func(figure) float64) []float64 {
	return r.ratiosOf(disk, peerOf(r.systems), figureOf)
}

// ratiosOf returns the ratios of one system to another.
func (r row) ratiosOf(one, other string, figureOf func(figure) float64) []float64 {
	a, b := r.of(one), r.of(other)
	var all []float64
	for t := range min(len(a), len(b)) {
		all = append(all, figureOf(a[t])/figureOf(b[t]))
	}
	return all
}

func median(figures []figure, of func(figure) float64) float64 {
	var all []float64
	for _, f := range figures {
		all = append(all, of(f))
	}
	return middle(all)
}

func middle(all []float64) float64 {
	s := slices.SortedFunc(slices.Values(all), cmp.Compare)
	return s[len(s)/2]
}

func short(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Millisecond {
		return d.Round(time.Microsecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

func writeCSV(to io.Writer, rows []row) error {
	w := csv.NewWriter(to)
	_ = w.Write([]string{"workload", "system", "turn", "operations_per_second", "p50_seconds", "p99_seconds", "cpu_seconds_per_operation"}) // see Error below
	for _, r := range rows {
		for i, figures := range r.figures {
			for t, f := range figures {
				_ = w.Write(append([]string{r.name, r.systems[i].name, strconv.Itoa(t + 1)}, f.fields()...))
			}
		}
	}
	w.Flush()
	return w.Error()
}

// fields returns the figure as CSV prints it. The processor time is 0 where it is not measured.
func (f figure) fields() []string {
	var all []string
	for _, x := range []float64{f.rate, f.p50.Seconds(), f.p99.Seconds(), f.cpu.Seconds()} {
		all = append(all, strconv.FormatFloat(x, 'g', 6, 64))
	}
	return all
}
