package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	root   = "../.." // of the module
	module = "github.com/conclave-go/conclave"
)

// source is one Go file of the module.
type source struct {
	path   string // from the module's root
	pkg    string // its folder; "." is the package conclave itself
	fset   *token.FileSet
	file   *ast.File
	lines  int
	nested bool // in a nested module
}

// ruled are nested modules that link what the root links and nothing else: its rules are theirs.
var ruled = []string{"contrib/consulapi"}

// load returns every Go file of the module, and of those in ruled, parsed. Other nested modules, such as
// tools, are not part of it.
func load(t *testing.T) []*source {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(loadAll(t)), func(s *source) bool { return s.nested })
}

// loadAll also returns the files of nested modules.
func loadAll(t *testing.T) []*source {
	t.Helper()
	sources, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

var parsed = sync.OnceValues(func() ([]*source, error) {
	var sources []*source
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s, err := parse(fset, filepath.ToSlash(relative), text)
		s.nested = foreign(filepath.Dir(path))
		sources = append(sources, s)
		return err
	})
	return sources, err
})

// foreign reports whether a folder belongs to a nested module with rules of its own.
func foreign(dir string) bool {
	for dir = filepath.Clean(dir); dir != filepath.Clean(root); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			relative, err := filepath.Rel(root, dir)
			return err != nil || !slices.Contains(ruled, filepath.ToSlash(relative))
		}
	}
	return false
}

func parse(fset *token.FileSet, path string, text []byte) (*source, error) {
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	pkg := filepath.ToSlash(filepath.Dir(path))
	return &source{path: path, pkg: pkg, fset: fset, file: file, lines: bytes.Count(text, []byte("\n"))}, err
}

// testPackages exist for tests only, so their files, and those of the folders
// below, count as tests.
var testPackages = []string{"internal/grouptest", "internal/memnet", "internal/memdisk", "internal/hostile", "internal/testport"}

func (s *source) isTest() bool {
	return strings.HasSuffix(s.path, "_test.go") ||
		slices.ContainsFunc(testPackages, func(p string) bool { return within(s.pkg, p) })
}

func (s *source) isGenerated() bool { return ast.IsGenerated(s.file) }

// isProgram reports whether the file belongs to a program and not to a library.
func (s *source) isProgram() bool { return within(s.pkg, "examples") }

// isLibrary reports whether the file is linked into an importer's binary.
func (s *source) isLibrary() bool { return !s.isTest() && !s.isProgram() && !s.isGenerated() }

// imports maps each import path to the name that the file uses for it.
func (s *source) imports() map[string]string {
	names := make(map[string]string)
	for _, spec := range s.file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has accepted the literal
		}
		elements := strings.Split(path, "/")
		name := elements[len(elements)-1]
		if major.MatchString(name) && len(elements) > 1 {
			name = elements[len(elements)-2] // rand, of math/rand/v2
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[path] = name
	}
	return names
}

// major matches the last element of an import path that is a major version.
var major = regexp.MustCompile(`^v[0-9]+$`)

// comments returns the lines with a comment that starts with prefix and goes on.
func (s *source) comments(prefix string) map[int]bool {
	lines := make(map[int]bool)
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if reason, ok := strings.CutPrefix(c.Text, prefix); ok && reason != "" {
				lines[s.fset.Position(c.Pos()).Line] = true
			}
		}
	}
	return lines
}

// fault formats a finding with its position.
func (s *source) fault(at token.Pos, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.path, s.fset.Position(at).Line, fmt.Sprintf(format, args...))
}

// within reports whether path is parent or below it.
func within(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}

// rule returns the violations in a file.
type rule func(*source) []string

// check applies a rule to every file of the module.
func check(t *testing.T, r rule) {
	t.Helper()
	for _, s := range load(t) {
		report(t, r(s))
	}
}

// checkAll applies a rule to every file of the repository.
func checkAll(t *testing.T, r rule) {
	t.Helper()
	for _, s := range loadAll(t) {
		report(t, r(s))
	}
}

func report(t *testing.T, faults []string) {
	t.Helper()
	for _, f := range slices.Compact(faults) {
		t.Error(f)
	}
}
