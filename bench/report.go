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

// row is the result of a workload: the figures of each turn, by group.
type row struct {
	workload
	figures [][]figure
}

func header(peer bool) string {
	h := fmt.Sprintf("%-16s %10s %9s %9s", "workload", "conclave/s", "p50", "p99")
	if peer {
		h += fmt.Sprintf(" | %10s %9s %9s | %-24s %-8s %-8s", "etcd/s", "p50", "p99", "ratio (all pairs)", "p50", "p99")
	}
	return h + "\n"
}

func (r row) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s", r.name)
	for i, figures := range r.figures {
		if i > 0 {
			b.WriteString(" |")
		}
		fmt.Fprintf(&b, " %10.0f %9s %9s", median(figures, rate), short(median(figures, p50)), short(median(figures, p99)))
	}
	if len(r.figures) == 2 {
		ratios := r.ratios(rate)
		fmt.Fprintf(&b, " | %-24s %-8.2f %-8.2f", fmt.Sprintf("%.2f (%.2f to %.2f)", middle(ratios), slices.Min(ratios), slices.Max(ratios)),
			middle(r.ratios(p50)), middle(r.ratios(p99)))
	}
	return b.String() + "\n"
}

func rate(f figure) float64 { return f.rate }
func p50(f figure) float64  { return f.p50.Seconds() }
func p99(f figure) float64  { return f.p99.Seconds() }

// ratios returns conclave's figure by etcd's, pair by pair.
func (r row) ratios(of func(figure) float64) []float64 {
	var all []float64
	for t := range r.figures[0] {
		all = append(all, of(r.figures[0][t])/of(r.figures[1][t]))
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
	_ = w.Write([]string{"workload", "system", "turn", "operations_per_second", "p50_seconds", "p99_seconds"}) // see Error below
	for _, r := range rows {
		for i, figures := range r.figures {
			for t, f := range figures {
				number := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
				_ = w.Write([]string{r.name, systems[i], strconv.Itoa(t + 1), number(f.rate), number(f.p50.Seconds()), number(f.p99.Seconds())})
			}
		}
	}
	w.Flush()
	return w.Error()
}

var systems = []string{"conclave", "etcd"}
