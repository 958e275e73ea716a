package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// planted is a bug in the source: the file that has it, and the patch that says
// so in the names of today.
type planted struct {
	bug
	changed string // the text of the file, with the bug
	note    string // what to check by eye
}

// table is the outcome of matching every bug.
type table struct {
	bugs   []bug
	found  map[string]planted
	faults map[string]error
}

// match finds the place of each bug. What the names of one patch are called now
// is known from the others too.
func match(s *source, bugs []bug) *table {
	t := &table{bugs: bugs, found: make(map[string]planted), faults: make(map[string]error)}
	var fits []*fit
	var pairs []pairing
	for i := range bugs {
		f, err := s.find(&bugs[i])
		if err != nil {
			t.faults[bugs[i].name] = err
			continue
		}
		fits = append(fits, f)
		pairs = append(pairs, f.pairs...)
	}
	everywhere := learn(pairs)
	for _, f := range fits {
		p, err := s.plant(f, everywhere)
		if err != nil {
			t.faults[f.name] = err
			continue
		}
		t.found[f.name] = p
	}
	return t
}

// plant puts a bug into its place, and writes its patch in the names of today.
func (s *source) plant(f *fit, everywhere renames) (planted, error) {
	known := learn(f.pairs)
	// Inside of what is replaced a name has one meaning.
	maps.Copy(known, learn(f.pairs[:f.sure]))
	replacement, strange := s.rename(f.new, known, everywhere)
	if len(strange) > 0 {
		return planted{}, fmt.Errorf("does not fit: its new code has names that the source lacks: %s%s",
			strings.Join(strange, ", "), s.list([]place{f.place}))
	}
	text := s.files[f.in.file]
	replacement = strings.TrimRight(withoutComments(replacement), " \t\n")
	p := planted{bug: *f.bug, note: f.note, changed: text[:f.from] + strings.TrimSpace(replacement) + text[f.to:]}
	p.file = f.in.file
	p.rewrite(text, f.in, f.from, f.to, replacement)
	return p, nil
}

// rename rewrites the names in a piece of code, and returns those that neither
// the piece itself nor the source has.
func (s *source) rename(code string, known, everywhere renames) (string, []string) {
	lexemes := lex(code)
	own := declared(code)
	var out strings.Builder
	var strange []string
	end := 0
	for _, l := range lexemes {
		out.WriteString(code[end:l.start])
		end = l.end
		now := l.text
		if l.kind == name {
			now = known.of(l, now)
			if known.lacks(l) && !s.names[now] && !own[now] {
				now = everywhere.of(l, now)
			}
			if !s.names[now] && !own[now] && !slices.Contains(fixed, now) && !slices.Contains(strange, now) {
				strange = append(strange, now)
			}
		}
		out.WriteString(now)
	}
	return out.String() + code[end:], strange
}

func (r renames) lacks(l lexeme) bool { return r.of(l, "") == "" }

// of returns what a name is called now. A field has one name after a dot and in
// a literal.
func (r renames) of(l lexeme, otherwise string) string {
	if now, ok := r[l.key()]; ok {
		return now
	}
	if now, ok := r["."+l.text]; ok {
		return now
	}
	if now, ok := r[l.text]; ok {
		return now
	}
	return otherwise
}

// declared are the names that a piece of code declares itself, roughly: those
// before := in its line, and parameters of function literals.
func declared(code string) map[string]bool {
	own := make(map[string]bool)
	for line := range strings.Lines(code) {
		left, _, assigns := strings.Cut(line, ":=")
		if assigns {
			for _, l := range lex(left) {
				own[l.text] = true
			}
		}
		if _, literal, ok := strings.Cut(line, "func("); ok {
			parameters, _, _ := strings.Cut(literal, ")")
			for _, l := range lex(parameters) {
				own[l.text] = true
			}
		}
	}
	return own
}

// surrounding is how many lines a patch has on either side of the change.
const surrounding = 10

// rewrite quotes the source as it is: the lines that the bytes from, to are in
// are replaced, and what is around them in the declaration is context. Comments
// are left out.
func (b *bug) rewrite(file string, in *declaration, from, to int, replacement string) {
	blank := withoutComments(file)
	start, end := lineStart(blank, from), lineEnd(blank, to)
	before, old, after := blank[lineStart(blank, in.start):start], blank[start:end], blank[end:lineEnd(blank, in.end)]
	if lead := blank[start:from]; strings.TrimSpace(lead) != "" || !strings.HasPrefix(replacement, lead) {
		replacement = lead + strings.TrimLeft(replacement, " \t\n")
	}
	replacement = strings.TrimRight(replacement, " \t\n") + blank[to:end]
	was, will, above := solid(old), solid(replacement), solid(before)
	for len(was) > 1 && len(will) > 0 && was[0] == will[0] {
		above, was, will = append(above, was[0]), was[1:], will[1:]
	}
	below := solid(after)
	for n, m := len(was)-1, len(will)-1; n > 0 && m >= 0 && was[n] == will[m]; n, m = n-1, m-1 {
		below = append([]string{was[n]}, below...)
		was, will = was[:n], will[:m]
	}
	above, below = above[max(len(above)-surrounding, 0):], below[:min(len(below), surrounding)]
	b.old = strings.Join(slices.Concat(above, was, below), "")
	b.from = len(strings.Join(above, ""))
	b.to = b.from + len(strings.Join(was, ""))
	b.new = strings.Join(will, "")
}

// solid are the lines of a text that are not empty.
func solid(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \t\n"); line != "" {
			lines = append(lines, line+"\n")
		}
	}
	return lines
}

func lineStart(text string, at int) int { return strings.LastIndexByte(text[:at], '\n') + 1 }

func lineEnd(text string, at int) int {
	if i := strings.IndexByte(text[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(text)
}
