package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bug is a plausible mistake and the test that must fail because of it. It is
// kept as a patch; see the package comment.
type bug struct {
	name string
	path string // of the patch, from the repository's root
	what string // one line, the mistake
	file string // where it was when the patch was written; a hint
	test test
	old  string // Go: the code around the mistake, as it is right
	// from, to delimit what is replaced in old.
	from, to int
	new      string // Go: what replaces it
}

// test is the cheapest run that fails because of the bug.
type test struct {
	pkg  string // "./cluster"; "." is the package conclave
	run  string // -run, without the ^ and $ of each part
	args []string
}

func (t test) String() string {
	return strings.Join(append([]string{t.pkg, t.run}, t.args...), " ")
}

// pattern is the test's name as -run wants it, each part in full.
func (t test) pattern() string {
	parts := strings.Split(t.run, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	return strings.Join(parts, "/")
}

// patches is where the bugs are, from the repository's root.
const patches = "tools/planted/bugs"

// loadBugs reads the patches, in the order of their paths.
func loadBugs(root string) ([]bug, error) {
	var bugs []bug
	err := filepath.WalkDir(filepath.Join(root, patches), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".patch" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b, err := parseBug(string(data))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		b.name = strings.TrimSuffix(d.Name(), ".patch")
		if b.path, err = filepath.Rel(root, path); err != nil {
			return err
		}
		if slices.ContainsFunc(bugs, func(other bug) bool { return other.name == b.name }) {
			return fmt.Errorf("%s: another patch has that name", path)
		}
		bugs = append(bugs, b)
		return nil
	})
	return bugs, err
}

// parseBug reads a patch: the mistake in a line, "at:" and "test:" lines, an
// empty line, and the body.
func parseBug(patch string) (bug, error) {
	var b bug
	head, body, ok := strings.Cut(patch, "\n\n")
	if !ok {
		return b, fmt.Errorf("no empty line between head and body")
	}
	for i, line := range strings.Split(head, "\n") {
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case i == 0:
			b.what = line
		case key == "at":
			b.file = value
		case key == "test":
			fields := strings.Fields(value)
			if len(fields) < 2 {
				return b, fmt.Errorf("invalid test %q: want a package and a test", value)
			}
			b.test = test{pkg: fields[0], run: fields[1], args: fields[2:]}
		default:
			return b, fmt.Errorf("invalid line %q: want the key at or test", line)
		}
	}
	return b, b.parseBody(body)
}

// parseBody reads lines that begin with a space (context), - (replaced) or +
// (replacement). All between the first and the last change is one replacement.
func (b *bug) parseBody(body string) error {
	lines := strings.SplitAfter(strings.TrimRight(body, "\n")+"\n", "\n")
	changed := func(line string) bool { return strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") }
	first := slices.IndexFunc(lines, changed)
	if first < 0 {
		return fmt.Errorf("the body changes nothing")
	}
	last := len(lines) - 1
	for !changed(lines[last]) {
		last--
	}
	for i, line := range lines[:len(lines)-1] {
		if i == first {
			b.from = len(b.old)
		}
		rest := line[1:]
		switch {
		case line[0] == '-':
			b.old += rest
		case line[0] == '+':
			b.new += rest
		case line[0] == ' ' || line == "\n":
			if line == "\n" {
				rest = line
			}
			b.old += rest
			if first < i && i < last {
				b.new += rest
			}
		default:
			return fmt.Errorf("invalid line %q: want one that begins with a space, - or +", line)
		}
		if i == last {
			b.to = len(b.old)
		}
	}
	if strings.TrimSpace(b.old[b.from:b.to]) == "" {
		return fmt.Errorf("no line begins with -: an insertion repeats a line beside it as - and as +")
	}
	return nil
}

// format is the inverse of parseBug.
func (b bug) format() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\nat: %s\ntest: %s\n\n", b.what, b.file, b.test)
	lines := func(mark, piece string) {
		for line := range strings.Lines(piece) {
			out.WriteString(mark + strings.TrimRight(line, " \t\n") + "\n")
		}
	}
	lines(" ", b.old[:b.from])
	lines("-", b.old[b.from:b.to])
	lines("+", b.new)
	lines(" ", b.old[b.to:])
	return out.String()
}

// narrow returns the bug without the tokens at both ends that old and new lines
// have in common. There is none if nothing would be left to replace.
func (b bug) narrow() (bug, bool) {
	old, now := lex(b.old[b.from:b.to]), lex(b.new)
	same := func(i, j int) bool { return old[i].text == now[j].text }
	first := 0
	for first < min(len(old), len(now)) && same(first, first) {
		first++
	}
	last := 0 // counted from the end
	for last < min(len(old), len(now))-first && same(len(old)-1-last, len(now)-1-last) {
		last++
	}
	if first+last == 0 || first+last >= len(old) {
		return b, false
	}
	b.from, b.to = b.from+old[first].start, b.from+old[len(old)-1-last].end
	text := b.new
	if b.new = ""; first+last < len(now) {
		b.new = text[now[first].start:now[len(now)-1-last].end]
	}
	return b, true
}
