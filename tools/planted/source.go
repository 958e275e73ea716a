package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// source is the Go code of a repository: what bugs are planted in.
type source struct {
	files        map[string]string // by path from the root, with slashes
	declarations []*declaration
	names        map[string]bool // every name that occurs
}

// declaration is one of a file's top-level declarations.
type declaration struct {
	file       string
	title      string // of a function, its name
	start, end int
	lexemes    []lexeme // offsets are the file's
	has        map[string]bool
}

// loadSource reads the library's files; those that bugs are planted in are
// searched.
func loadSource(root string, files []string) (*source, error) {
	s := &source{files: make(map[string]string), names: make(map[string]bool)}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if os.IsNotExist(err) { // removed, and not committed yet
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := s.add(file, string(data), production(file)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add takes a file in; one that is not to be searched gives its names only.
func (s *source) add(file, text string, search bool) error {
	for _, l := range lex(text) {
		if l.kind == name {
			s.names[l.text] = true
		}
	}
	if !search {
		return nil
	}
	s.files[file] = text
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, decl := range parsed.Decls {
		d := &declaration{file: file, has: make(map[string]bool)}
		d.start, d.end = files.Position(decl.Pos()).Offset, files.Position(decl.End()).Offset
		if f, ok := decl.(*ast.FuncDecl); ok {
			d.title = f.Name.Name
		}
		d.lexemes = lex(text[d.start:d.end])
		for i := range d.lexemes {
			l := &d.lexemes[i]
			l.start, l.end = l.start+d.start, l.end+d.start
			d.has[l.text] = true
		}
		s.declarations = append(s.declarations, d)
	}
	return nil
}

// production reports whether bugs are planted in a file: it is not generated, a
// test, or an example.
func production(file string) bool {
	return !strings.HasSuffix(file, "_test.go") && !strings.HasSuffix(file, ".pb.go") && !strings.HasPrefix(file, "examples/")
}

// goFiles are the library's Go files, committed or not.
func goFiles(root string) ([]string, error) {
	list, err := git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.go")
	if err != nil {
		return nil, err
	}
	var files []string
	for file := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		if !strings.HasPrefix(file, "tools/") {
			files = append(files, file)
		}
	}
	return files, nil
}
