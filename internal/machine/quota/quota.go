// Package quota divides a number of things among weighted parties: each gets its part rounded down or up, and as few as possible
// get another number than they have.
package quota

import (
	"cmp"
	"slices"
)

// Party is one of those among whom things are divided.
type Party struct {
	Weight int // at least 1
	Has    int // things, before
	Gets   int // the result
}

// Divide divides n things, and sets what each party gets. Of those whose part is no whole number some get it rounded up: first those that have
// more than the rounded part already, in their order, and then the others, the one that lacks most first, and of equal ones the last.
func Divide(n int, parties []*Party) {
	sum := 0
	for _, p := range parties {
		sum += p.Weight
	}
	rest := n
	var uneven []*Party
	for _, p := range parties {
		p.Gets = n * p.Weight / sum
		rest -= p.Gets
		if n*p.Weight%sum != 0 {
			uneven = append(uneven, p)
		}
	}
	// The order of parties is that of equal ones in the first group, and the other way round in the second.
	slices.SortStableFunc(uneven, func(a, b *Party) int {
		more, than := a.Has > a.Gets, b.Has > b.Gets
		switch {
		case more && than:
			return 0
		case more:
			return -1
		case than:
			return 1
		}
		return cmp.Compare(a.Has-a.Gets, b.Has-b.Gets)
	})
	first := slices.IndexFunc(uneven, func(p *Party) bool { return p.Has <= p.Gets })
	if first >= 0 {
		reverseEqual(uneven[first:])
	}
	for _, p := range uneven[:rest] {
		p.Gets++
	}
}

// reverseEqual reverses each run of parties that lack the same.
func reverseEqual(parties []*Party) {
	for i := 0; i < len(parties); {
		end := i + 1
		for end < len(parties) && parties[end].Has-parties[end].Gets == parties[i].Has-parties[i].Gets {
			end++
		}
		slices.Reverse(parties[i:end])
		i = end
	}
}
