package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// shares compares own-N with ceiling-N where both ran: what sessions, locks and the client
// leave of the rate that conclave's member has with an empty machine.
func shares(rows []row) string {
	var b strings.Builder
	for _, ceiling := range rows {
		n, ok := strings.CutPrefix(ceiling.name, "ceiling-")
		i := slices.IndexFunc(rows, func(r row) bool { return r.name == "own-"+n })
		if !ok || i < 0 {
			continue
		}
		for _, s := range ceiling.systems {
			if whole := ceiling.of(s.name); len(whole) > 0 {
				which := ""
				if s.name != disk {
					which = ", " + s.name
				}
				got, most := median(rows[i].of(s.name), rate), median(whole, rate)
				fmt.Fprintf(&b, "share of the ceiling%s: own-%s %s / %s = %.2f\n", which, n, grouped(got), grouped(most), got/most)
			}
		}
	}
	return b.String()
}

// grouped prints a number with commas: 22,624.
func grouped(x float64) string {
	digits := strconv.FormatFloat(x, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
