package arch

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// maxLines is where a file has certainly become more than one idea. The
// ordinary one has 90 to 200.
const maxLines = 500

func TestFilesAreShort(t *testing.T) { check(t, short) }

func short(s *source) []string {
	if s.isTest() || s.isGenerated() || s.lines <= maxLines {
		return nil
	}
	return []string{s.fault(s.file.Package, "%d lines, at most %d: move one of the ideas in it to a file of its own", s.lines, maxLines)}
}

// vague are names that say nothing, so that everything ends up behind them.
var vague = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base", "lib"}

func TestPackagesSayWhatTheyAre(t *testing.T) { check(t, named) }

func named(s *source) []string {
	name := strings.TrimSuffix(s.file.Name.Name, "_test")
	if slices.Contains(vague, name) || slices.Contains(vague, path.Base(s.pkg)) {
		return []string{s.fault(s.file.Package, "a package called %s says nothing: name it after what it provides, or put its functions where they are used", name)}
	}
	return nil
}

// seams are importable only so that a reader sees the building.
var seams = []string{"cluster", "cluster/core", "cluster/transport", "raftlog", "storage"}

func TestSeamsSayThatTheyAreNoAPI(t *testing.T) {
	docs := make(map[string]string)
	for _, s := range load(t) {
		if s.isLibrary() {
			docs[s.pkg] += strings.Join(strings.Fields(s.file.Doc.Text()), " ")
		}
	}
	for _, pkg := range seams {
		if !strings.Contains(docs[pkg], "a seam, not an API") {
			t.Errorf("package %s: its comment has to say that it is \"a seam, not an API\"", pkg)
		}
	}
}

// What users program against is explained.
func TestExportedNamesAreExplained(t *testing.T) { check(t, explained) }

func explained(s *source) []string {
	if s.pkg != "." || !s.isLibrary() {
		return nil
	}
	var faults []string
	need := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if ast.IsExported(name.Name) && !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d.Text() != "" }) {
			faults = append(faults, s.fault(name.Pos(), "%s has no comment: say what it does, what blocks, which errors come, units, and what is not promised", name.Name))
		}
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if isAPI(d) {
				need(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			each(d, need)
		}
	}
	return faults
}

// isAPI leaves out methods of what users cannot name, and the two that every
// error has.
func isAPI(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	return ast.IsExported(receiver(f)) && f.Name.Name != "Error" && f.Name.Name != "Unwrap"
}

// each calls need for the names of a declaration. A comment on a group is not
// one on each of its members.
func each(d *ast.GenDecl, need func(*ast.Ident, ...*ast.CommentGroup)) {
	group := d.Doc
	if d.Lparen != token.NoPos {
		group = nil
	}
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			need(spec.Name, spec.Doc, spec.Comment, group)
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				need(name, spec.Doc, spec.Comment, group)
			}
		}
	}
}
