package main

// Alignment of two sequences of lexemes, as of two genomes (Needleman and
// Wunsch 1970): pairs of like lexemes score, gaps cost.

const (
	patternGap = 0.15 // of the weight: a lexeme of the pattern that the text lacks
	textGap    = 0.06 // of the weight: a lexeme that the text has in addition
	reach      = 40   // at this distance from the change context counts half
)

// pattern is a bug's old code: what is replaced must occur as a whole, the
// context around it may have changed.
type pattern struct {
	lexemes  []lexeme
	weights  []float64
	from, to int // what is replaced
	total    float64
}

func newPattern(b *bug) *pattern {
	p := &pattern{lexemes: lex(b.old)}
	p.from, p.to = -1, len(p.lexemes)
	for i, l := range p.lexemes {
		if l.start >= b.from && p.from < 0 {
			p.from = i
		}
		if l.start >= b.to {
			p.to = min(p.to, i)
		}
	}
	p.from = max(p.from, 0)
	if p.to > p.from+1 && p.lexemes[p.to-1].text == "," { // where the list ends here today there is none
		p.to--
	}
	for i, l := range p.lexemes {
		distance := max(p.from-i, i-p.to+1, 0)
		p.weights = append(p.weights, l.kind.weight()/(1+float64(distance)/reach))
		p.total += p.weights[i]
	}
	return p
}

// bound is an upper limit of the pattern's score in a declaration.
func (p *pattern) bound(d *declaration) float64 {
	var sum float64
	for i, l := range p.lexemes {
		switch {
		case d.has[l.text]:
			sum += p.weights[i]
		case l.kind == name || l.kind == text:
			sum += p.weights[i] / 2
		}
	}
	return sum / p.total
}

// pairing is a lexeme of the pattern and the one that stands for it.
type pairing struct{ old, now lexeme }

// replaced compares what is replaced with the lexemes at one place. Names may
// differ, one for one.
func (p *pattern) replaced(at []lexeme) (score float64, pairs []pairing, ok bool) {
	changed := p.lexemes[p.from:p.to]
	if len(at) < len(changed) {
		return 0, nil, false
	}
	there, back := make(map[string]string), make(map[string]string)
	for i, old := range changed {
		like := likeness(old, at[i])
		if like == 0 {
			return 0, nil, false
		}
		if old.kind == name {
			a, b := old.key(), at[i].key()
			if known, ok := there[a]; ok && known != b {
				return 0, nil, false
			}
			if known, ok := back[b]; ok && known != a {
				return 0, nil, false
			}
			there[a], back[b] = b, a
		}
		score += like * p.weights[p.from+i]
		pairs = append(pairs, pairing{old, at[i]})
	}
	return score, pairs, true
}

// grid holds the best scores of aligning the first i lexemes of one side of the
// pattern with the first j of the text; the text may begin with more.
type grid struct {
	pattern, text []lexeme
	weights       []float64
	scores        []float64
}

func newGrid(pattern, text []lexeme, weights []float64) *grid {
	g := &grid{pattern, text, weights, make([]float64, (len(pattern)+1)*(len(text)+1))}
	for i := 1; i <= len(pattern); i++ {
		for j := 0; j <= len(text); j++ {
			g.scores[i*(len(text)+1)+j], _ = g.step(i, j)
		}
	}
	return g
}

type move int

const (
	skipPattern move = iota
	skipText
	pair
)

// step returns the best score for i and j, and how it is reached.
func (g *grid) step(i, j int) (float64, move) {
	best, how := g.at(i-1, j)-patternGap*g.weights[i-1], skipPattern
	if j == 0 {
		return best, how
	}
	if score := g.at(i, j-1) - textGap*g.weights[i-1]; score > best {
		best, how = score, skipText
	}
	if like := likeness(g.pattern[i-1], g.text[j-1]); like > 0 {
		if score := g.at(i-1, j-1) + like*g.weights[i-1]; score > best {
			best, how = score, pair
		}
	}
	return best, how
}

func (g *grid) at(i, j int) float64 { return g.scores[i*(len(g.text)+1)+j] }

// trace returns the pairs of the best alignment that ends before j.
func (g *grid) trace(j int) []pairing {
	var pairs []pairing
	for i := len(g.pattern); i > 0; {
		switch _, how := g.step(i, j); how {
		case pair:
			i, j = i-1, j-1
			pairs = append(pairs, pairing{g.pattern[i], g.text[j]})
		case skipText:
			j--
		default:
			i--
		}
	}
	return pairs
}
