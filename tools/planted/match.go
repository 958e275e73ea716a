package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	enough = 0.55 // a place that scores less is not believed to be the one
	faint  = 0.4  // unless it scores this, and no other place is near
	margin = 0.02 // by which the best place must lead
	clear  = 0.15 // by which a faint one must
	strict = 0.75 // what a place must score where the changed lines were rewritten
	nearby = 0.01 // added for the package that the patch names, and twice for the file
)

// place is where a bug may be planted.
type place struct {
	in    *declaration
	at    int // the first lexeme that is replaced
	score float64
	exact bool // the pattern, word for word
}

// fit is a bug's place and what the names of its pattern are called there.
type fit struct {
	*bug
	place
	from, to int // bytes of the file that are replaced
	pairs    []pairing
	sure     int    // the first pairs, which are of what is replaced
	note     string // what to check by eye
}

// find returns the place of a bug; if there is none or more than one, an error
// that lists the closest. Where the changed lines occur nowhere, the tokens that
// change may still do.
func (s *source) find(b *bug) (*fit, error) {
	f, err := s.findExtent(b)
	if err == nil {
		return f, nil
	}
	if narrow, ok := b.narrow(); ok {
		if f, err := s.findExtent(&narrow); err == nil && f.score >= strict {
			f.note = "its changed lines were rewritten around the change"
			return f, nil
		}
	}
	return nil, err
}

func (s *source) findExtent(b *bug) (*fit, error) {
	p := newPattern(b)
	places := s.places(p, b.file)
	if len(places) == 0 {
		return nil, fmt.Errorf("does not fit: the code that it replaces occurs nowhere; its context is like%s", s.list(s.resembling(p)))
	}
	best, second := places[0], 0.0
	if len(places) > 1 {
		second = places[1].score
	}
	if best.score < faint || best.score < enough && best.score < second+clear {
		return nil, fmt.Errorf("does not fit: no place is like it%s", s.list(places))
	}
	if best.score < second+margin && (!best.exact || places[1].exact) {
		return nil, fmt.Errorf("does not fit: more than one place is like it%s", s.list(places))
	}
	f := &fit{bug: b, place: best, sure: p.to - p.from}
	if best.score < strict {
		f.note = fmt.Sprintf("its context has little in common with the source (%.2f)", best.score)
	}
	f.pairs = p.pairs(best)
	d := best.in
	f.from, f.to = d.lexemes[best.at].start, d.lexemes[best.at+p.to-p.from-1].end
	if strings.HasSuffix(strings.TrimSpace(withoutComments(b.old[b.from:b.to])), ",") && strings.HasPrefix(s.files[d.file][f.to:], ",") {
		f.to++
	}
	return f, nil
}

// places returns the places that have what is replaced, best first, as far as
// they can compete with the best.
func (s *source) places(p *pattern, hint string) []place {
	type chance struct {
		in    *declaration
		hits  []int
		limit float64
	}
	var chances []chance
	for _, d := range s.declarations {
		if hits := p.hits(d); len(hits) > 0 {
			chances = append(chances, chance{d, hits, p.bound(d) + bonus(d.file, hint)})
		}
	}
	slices.SortStableFunc(chances, func(a, b chance) int { return cmp.Compare(b.limit, a.limit) })
	var places []place
	best := 0.0
	for _, c := range chances {
		if c.limit < max(best-3*margin, enough/2) {
			break
		}
		before, after := p.grids(c.in)
		for _, at := range c.hits {
			score, _, _ := p.replaced(c.in.lexemes[at:])
			score += before.at(p.from, at)
			score += after.at(len(p.lexemes)-p.to, len(c.in.lexemes)-at-(p.to-p.from))
			score /= p.total
			exact := score > 1-1e-9
			score += bonus(c.in.file, hint)
			best = max(best, score)
			places = append(places, place{c.in, at, score, exact})
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(b.score, a.score) })
	return places
}

// resembling returns the declarations that are most like a pattern, wherever the
// change would be in them.
func (s *source) resembling(p *pattern) []place {
	var found []place
	for _, d := range s.declarations {
		if len(d.lexemes) == 0 || p.bound(d) < faint {
			continue
		}
		g := newGrid(p.lexemes, d.lexemes, p.weights)
		score := 0.0
		for j := range len(d.lexemes) + 1 {
			score = max(score, g.at(len(p.lexemes), j)/p.total)
		}
		found = append(found, place{in: d, score: score})
	}
	slices.SortStableFunc(found, func(a, b place) int { return cmp.Compare(b.score, a.score) })
	return found
}

// hits are the places in a declaration that have what is replaced.
func (p *pattern) hits(d *declaration) []int {
	var found []int
	for at := range d.lexemes {
		if likeness(p.lexemes[p.from], d.lexemes[at]) == 0 {
			continue
		}
		if _, _, ok := p.replaced(d.lexemes[at:]); ok {
			found = append(found, at)
		}
	}
	return found
}

// grids align the context before the change forwards and that after it
// backwards, so that both end at the change.
func (p *pattern) grids(d *declaration) (before, after *grid) {
	before = newGrid(p.lexemes[:p.from], d.lexemes, p.weights[:p.from])
	after = newGrid(reversed(p.lexemes[p.to:]), reversed(d.lexemes), reversed(p.weights[p.to:]))
	return before, after
}

// pairs are the lexemes that correspond when the bug is at pl, the surest first.
func (p *pattern) pairs(pl place) []pairing {
	d := pl.in.lexemes
	_, pairs, _ := p.replaced(d[pl.at:])
	before, after := p.grids(pl.in)
	pairs = append(pairs, before.trace(pl.at)...)
	return append(pairs, after.trace(len(d)-pl.at-(p.to-p.from))...)
}

func reversed[E any](s []E) []E {
	s = slices.Clone(s)
	slices.Reverse(s)
	return s
}

func bonus(file, hint string) float64 {
	switch {
	case file == hint:
		return 2 * nearby
	case directory(file) == directory(hint):
		return nearby
	}
	return 0
}

func directory(file string) string {
	return file[:strings.LastIndex(file, "/")+1]
}

// list prints the best places, one a line.
func (s *source) list(places []place) string {
	var out strings.Builder
	for _, p := range places[:min(len(places), 3)] {
		at := p.in.lexemes[p.at].start
		text := s.files[p.in.file]
		line, _, _ := strings.Cut(text[at:], "\n")
		fmt.Fprintf(&out, "\n    %.2f  %s:%d %s: %s", p.score, p.in.file, 1+strings.Count(text[:at], "\n"), p.in.title, line)
	}
	return out.String()
}

// renames maps the names of patches to those of the source.
type renames map[string]string

// learn adds what pairs show; of several names the most frequent, and of equally
// frequent ones the old.
func learn(pairs []pairing) renames {
	counts := make(map[string]map[string]int)
	for _, p := range pairs {
		if p.old.kind != name || p.now.kind != name {
			continue
		}
		if counts[p.old.key()] == nil {
			counts[p.old.key()] = make(map[string]int)
		}
		counts[p.old.key()][p.now.text]++
	}
	known := make(renames)
	for key, now := range counts {
		old := strings.TrimPrefix(key, ".")
		known[key] = slices.MaxFunc(slices.Sorted(maps.Keys(now)), func(a, b string) int {
			return cmp.Or(cmp.Compare(now[a], now[b]), cmp.Compare(truth(a == old), truth(b == old)))
		})
	}
	return known
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
