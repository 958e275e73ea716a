package main

import (
	"fmt"
	"slices"
	"strings"
)

// shares prints what sessions, locks and the client leave of the rate that conclave's
// member has with an empty machine: the median of the pairs, the smallest and the largest.
func shares(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		if all := r.ratiosOf(disk, ceiling, rate); len(all) > 0 {
			fmt.Fprintf(&b, "share of the ceiling: %s %.2f (%.2f to %.2f)\n", r.name, middle(all), slices.Min(all), slices.Max(all))
		}
	}
	return b.String()
}
