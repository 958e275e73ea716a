package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
)

// A panel of the chart, in pixels: the frame of the plot lies within it.
const (
	panelWidth, panelHeight = 380, 210
	plotLeft, plotTop       = 60, 40
	plotWidth, plotHeight   = 300, 120
	panelsInRow             = 2
)

// writeGrowthSVG draws a panel for each growth: cycles per second, from 0, at each size. The
// sizes are equally spaced, as they grow by factors.
func writeGrowthSVG(to io.Writer, curves []curve) error {
	rows := (len(curves) + panelsInRow - 1) / panelsInRow
	fmt.Fprintf(to, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">
<rect width="100%%" height="100%%" fill="white"/>
`, panelsInRow*panelWidth, rows*panelHeight)
	for i, c := range curves {
		fmt.Fprintf(to, "<g transform=\"translate(%d %d)\">\n", i%panelsInRow*panelWidth, i/panelsInRow*panelHeight)
		c.draw(to)
		fmt.Fprintln(to, "</g>")
	}
	_, err := fmt.Fprintln(to, "</svg>")
	return err
}

func (c curve) draw(to io.Writer) {
	largest := 0.0
	for _, p := range c.points {
		largest = max(largest, median(p.figures, rate))
	}
	scale := plotHeight / (1.15 * cmp.Or(largest, 1))
	bottom := plotTop + plotHeight
	fmt.Fprintf(to, "<text x=\"%d\" y=\"18\" font-weight=\"bold\">%s: per second</text>\n", plotLeft, c.name)
	fmt.Fprintf(to, "<path d=\"M%d %d V%d H%d\" fill=\"none\" stroke=\"#999\"/>\n", plotLeft, plotTop, bottom, plotLeft+plotWidth)
	line := ""
	for i, p := range c.points {
		got := median(p.figures, rate)
		x, y := plotLeft+(float64(i)+0.5)*plotWidth/float64(len(c.points)), float64(bottom)-got*scale
		fmt.Fprintf(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#4477aa\"/>\n", x, y)
		fmt.Fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x, y-7, grouped(got))
		fmt.Fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, bottom+16, c.label(p.x))
		line += fmt.Sprintf("%.1f,%.1f ", x, y)
	}
	fmt.Fprintf(to, "<polyline points=\"%s\" fill=\"none\" stroke=\"#4477aa\"/>\n", line)
}

// grouped prints a number with commas: 22,624.
func grouped(x float64) string {
	digits := strconv.FormatFloat(x, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
