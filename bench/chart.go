package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// writeSVG draws the ratio of conclave to the peer for each workload that ran on both: a bar to the median, a
// line from the smallest to the largest pair, on a logarithmic scale.
func writeSVG(to io.Writer, rows []row) error {
	if !slices.ContainsFunc(rows, row.compared) {
		return errors.New("-svg needs a comparison")
	}
	const left, width, line = 130, 560, 22
	largest := 1.0
	for _, r := range rows {
		if r.compared() {
			largest = max(largest, slices.Max(r.ratios(rate)))
		}
	}
	from, until := math.Log2(0.5), math.Ceil(math.Log2(largest*1.05))
	x := func(ratio float64) float64 {
		return left + width*(math.Log2(max(ratio, 0.5))-from)/(until-from)
	}
	height := line*len(rows) + 60
	fmt.Fprintf(to, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="white"/>
<text x="%d" y="16">Operations per second, conclave by %s (bar: median of the pairs; line: smallest and largest)</text>
`, left+width+60, height, 10, peerOf(rows[0].systems))
	for e := from; e <= until; e++ {
		at := x(math.Exp2(e))
		fmt.Fprintf(to, "<line x1=\"%.0f\" y1=\"28\" x2=\"%.0f\" y2=\"%d\" stroke=\"#ccc\"/><text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
			at, at, height-24, at, height-8, math.Exp2(e))
	}
	for i, r := range rows {
		y := 34 + line*i
		fmt.Fprintf(to, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", left-8, y+12, r.name)
		if !r.compared() {
			fmt.Fprintf(to, "<text x=\"%.1f\" y=\"%d\">-</text>\n", x(1)+5, y+12)
			continue
		}
		ratios := r.ratios(rate)
		m := middle(ratios)
		a, b := min(x(1), x(m)), max(x(1), x(m))
		fmt.Fprintf(to, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"14\" fill=\"#4477aa\"/>\n", a, y, b-a)
		fmt.Fprintf(to, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"black\"/>\n", x(slices.Min(ratios)), y+7, x(slices.Max(ratios)), y+7)
		fmt.Fprintf(to, "<text x=\"%.1f\" y=\"%d\">%.1f</text>\n", max(b, x(slices.Max(ratios)))+5, y+12, m)
	}
	_, err := fmt.Fprintln(to, "</svg>")
	return err
}

// compared reports whether there is a ratio.
func (r row) compared() bool { return len(r.ratios(rate)) > 0 }
