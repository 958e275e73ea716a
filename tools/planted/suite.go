package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// suite is the tests of a version of the repository.
type suite struct {
	source
	tests map[string]*declaration // by package and function: "./cluster TestX"
}

func newSuite() *suite {
	return &suite{source{files: make(map[string]string), names: make(map[string]bool)}, make(map[string]*declaration)}
}

// loadSuite reads the tests of the working tree.
func loadSuite(root string, files []string) (*suite, error) {
	s := newSuite()
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = s.addTests(file, string(data))
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// committedSuite reads the tests of a commit.
func committedSuite(root, commit string) (*suite, error) {
	s := newSuite()
	archive, err := git(root, "archive", commit, "--", "*_test.go")
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(strings.NewReader(archive)); ; {
		header, err := r.Next()
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg || strings.HasPrefix(header.Name, "tools/") {
			continue
		}
		var text bytes.Buffer
		if _, err := io.Copy(&text, r); err != nil {
			return nil, err
		}
		if err := s.addTests(header.Name, text.String()); err != nil {
			return nil, err
		}
	}
}

func (s *suite) addTests(file, text string) error {
	first := len(s.declarations)
	if err := s.add(file, text, true); err != nil {
		return err
	}
	for _, d := range s.declarations[first:] {
		if strings.HasPrefix(d.title, "Test") {
			s.tests[test{pkg: packageOf(file), run: d.title}.function()] = d
		}
	}
	return nil
}

func packageOf(file string) string {
	if dir := path.Dir(file); dir != "." {
		return "./" + dir
	}
	return "."
}

// function names the test's function, without subtests.
func (t test) function() string {
	name, _, _ := strings.Cut(t.run, "/")
	return t.pkg + " " + name
}

// script is the file that gives a subtest its name, if one does.
func (t test) script() string {
	_, part, ok := strings.Cut(t.run, "/")
	if !ok {
		return ""
	}
	return path.Join(t.pkg, "testdata", part+".txt")
}

// has reports whether the tree has a test.
func (s *suite) has(root string, t test) error {
	if s.tests[t.function()] == nil {
		return fmt.Errorf("there is no test %s", t.function())
	}
	// Other subtests are not known before they run.
	if script := t.script(); script != "" {
		if _, err := os.Stat(filepath.Join(root, script)); err != nil {
			return fmt.Errorf("there is no script %s", script)
		}
	}
	return nil
}

// history answers what tests are called now, from the commits in which the
// patches that name them were written.
type history struct {
	root string
	now  *suite
	past map[string]*suite
}

// rename returns the test that a patch names as it is called now.
func (h *history) rename(b *bug) (test, error) {
	commit, err := git(h.root, "log", "-1", "--format=%H", "--", b.path)
	if commit = strings.TrimSpace(commit); err != nil || commit == "" {
		return test{}, fmt.Errorf("%s is not committed: %w", b.path, err)
	}
	past := h.past[commit]
	if past == nil {
		if past, err = committedSuite(h.root, commit); err != nil {
			return test{}, err
		}
		h.past[commit] = past
	}
	renamed := b.test
	if h.now.tests[b.test.function()] == nil {
		if renamed, err = h.successor(past, b.test); err != nil {
			return test{}, err
		}
	}
	if script := b.test.script(); script != "" {
		now, err := h.renamedFile(commit, script)
		if err != nil {
			return test{}, err
		}
		function, _, _ := strings.Cut(renamed.run, "/")
		renamed.run = function + "/" + strings.TrimSuffix(path.Base(now), ".txt")
	}
	return renamed, h.now.has(h.root, renamed)
}

// successor returns the test of today that is most like a past one, of those
// that are new since.
func (h *history) successor(past *suite, t test) (test, error) {
	d := past.tests[t.function()]
	if d == nil {
		return test{}, fmt.Errorf("there was no test %s", t.function())
	}
	type chance struct {
		test  test
		score float64
	}
	chances := []chance{{}, {}}
	p := &pattern{lexemes: d.lexemes}
	for _, l := range d.lexemes {
		p.weights = append(p.weights, l.kind.weight())
		p.total += l.kind.weight()
	}
	for name, now := range h.now.tests {
		if past.tests[name] != nil || p.bound(now) < enough {
			continue
		}
		g := newGrid(p.lexemes, now.lexemes, p.weights)
		pkg, run, _ := strings.Cut(name, " ")
		chances = append(chances, chance{test{pkg, run, t.args}, g.at(len(p.lexemes), len(now.lexemes)) / p.total})
	}
	slices.SortFunc(chances, func(a, b chance) int { return cmp.Compare(b.score, a.score) })
	if best := chances[0]; best.score >= enough && best.score-chances[1].score >= margin {
		return best.test, nil
	}
	return test{}, fmt.Errorf("there is no test %s; the closest are %s (%.2f) and %s (%.2f)", t.function(),
		chances[0].test, chances[0].score, chances[1].test, chances[1].score)
}

// renamedFile returns what a file of a commit is called now.
func (h *history) renamedFile(commit, file string) (string, error) {
	list, err := git(h.root, "diff", "--find-renames=40%", "--diff-filter=R", "--name-status", commit)
	for line := range strings.Lines(list) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) == 3 && fields[1] == file {
			return fields[2], nil
		}
	}
	return file, err
}
