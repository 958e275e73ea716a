package main

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

const repository = "../.."

// loadedTree is the repository's tree, with the place of each bug, which takes half a minute to find.
var loadedTree = sync.OnceValues(func() (*tree, error) { return loadTree(repository) })

// A change of the source or of a test's name that makes a patch stale fails
// here, long before the bugs are run. See the package comment for what to do.
func TestBugs_FitTheSource(t *testing.T) {
	tree, err := loadedTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.table.bugs) == 0 {
		t.Fatal("no bugs")
	}
	for _, b := range tree.table.bugs {
		t.Run(b.name, func(t *testing.T) {
			if err := tree.fault(b); err != nil {
				t.Fatal(err)
			}
			p := tree.table.found[b.name]
			if _, err := parser.ParseFile(token.NewFileSet(), p.file, p.changed, 0); err != nil {
				t.Errorf("with the bug: %v", err)
			}
			if again, err := parseBug(p.format()); err != nil || again.format() != p.format() {
				t.Errorf("the patch is not read as written: %v", err)
			}
		})
	}
}

func everySixth(bugs []bug) (some []bug) {
	for i := 0; i < len(bugs); i += 6 {
		some = append(some, bugs[i])
	}
	return some
}

// Renames of many names at once: every bug is still found, and what is planted
// is the same bug in other words.
func TestBugs_RandomRenames(t *testing.T) {
	tree, err := loadedTree()
	if err != nil {
		t.Fatal(err)
	}
	runs, bugs := 3, tree.table.bugs
	if testing.Short() {
		runs, bugs = 1, everySixth(bugs)
	}
	names := tree.source.used(bugs)
	for seed := range uint64(runs) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			renamed := make(map[string]string)
			for len(renamed) < 30 {
				renamed[names[random.IntN(len(names))]] = fmt.Sprintf("other%d", len(renamed))
			}
			now := &source{files: make(map[string]string), names: make(map[string]bool)}
			for file, text := range tree.source.files {
				if err := now.add(file, respell(text, renamed), true); err != nil {
					t.Fatal(err)
				}
			}
			matched := match(now, bugs)
			for _, b := range bugs {
				if err := matched.faults[b.name]; err != nil {
					t.Errorf("%s %v", b.name, err)
					continue
				}
				want := lex(respell(tree.table.found[b.name].changed, renamed))
				got := lex(matched.found[b.name].changed)
				if !slices.EqualFunc(got, want, func(a, b lexeme) bool { return a.text == b.text }) {
					t.Errorf("%s: another bug is planted:\n%s", b.name, matched.found[b.name].format())
				}
			}
		})
	}
}

// used are the names in the source's declarations, without those that occur in
// replacements alone: nothing shows what such a name is called now, and match
// reports it.
func (s *source) used(bugs []bug) []string {
	found := make(map[string]bool)
	for _, d := range s.declarations {
		for _, l := range d.lexemes {
			if l.kind == name {
				found[l.text] = true
			}
		}
	}
	quoted := make(map[string]bool)
	for _, b := range bugs {
		for _, l := range lex(b.old) {
			quoted[l.text] = true
		}
	}
	for _, b := range bugs {
		own := declared(b.new)
		for _, l := range lex(b.new) {
			if own[l.text] || !quoted[l.text] {
				delete(found, l.text)
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func respell(source string, renamed map[string]string) string {
	var out strings.Builder
	end := 0
	for _, l := range lex(source) {
		out.WriteString(source[end:l.start])
		end = l.end
		if now, ok := renamed[l.text]; ok && l.kind == name {
			out.WriteString(now)
		} else {
			out.WriteString(l.text)
		}
	}
	return out.String() + source[end:]
}

func TestJudge(t *testing.T) {
	failed := errors.New("exit status 1")
	for name, test := range map[string]struct {
		out  string
		err  error
		want verdict
		line string
	}{
		"passes":           {"ok  \tconclave\t0.1s\n", nil, survived, ""},
		"fails":            {"--- FAIL: TestX (0.00s)\n    x_test.go:7: 1, not 2\nFAIL\nFAIL\tconclave\t0.1s\n", failed, killed, "x_test.go:7: 1, not 2"},
		"hangs":            {"panic: test timed out after 1m0s\nFAIL\tconclave\t60s\n", failed, killed, "panic: test timed out after 1m0s"},
		"is not there":     {"ok  \tconclave\t0.1s [no tests to run]\n", nil, broken, "there is no such test"},
		"does not compile": {"# conclave\n./x.go:3:1: undefined: y\nFAIL\tconclave [build failed]\n", failed, broken, "does not compile: ./x.go:3:1: undefined: y"},
		"is not run":       {"go: no such tool\n", failed, broken, "exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, line := judge(test.out, test.err); got != test.want || line != test.line {
				t.Errorf("%s, %q; want %s, %q", got, line, test.want, test.line)
			}
		})
	}
}
