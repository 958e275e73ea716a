package arch

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// An ordinary file has 90 to 200 lines and an ordinary function 6 to 20. These
// are the limits beyond which one holds more than one idea. They hold for tests
// too, and not for generated code. A dispatch table has as many lines as it has cases.
const (
	maxLines    = 400
	maxFunction = 60
)

func TestFiles_AreShort(t *testing.T) { checkAll(t, short) }

func short(s *source) []string {
	if s.isGenerated() || s.lines <= maxLines {
		return nil
	}
	return []string{s.fault(s.file.Package, "%d lines, at most %d: split the file by subject", s.lines, maxLines)}
}

func TestFunctions_AreShort(t *testing.T) { checkAll(t, brief) }

func brief(s *source) []string {
	if s.isGenerated() {
		return nil
	}
	var faults []string
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if isTable(f) {
			continue
		}
		if n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; n > maxFunction {
			faults = append(faults, s.fault(f.Pos(), "%s has %d lines, at most %d: extract a step with a name of its own", f.Name.Name, n, maxFunction))
		}
	}
	return faults
}

// isTable reports whether a function is a dispatch table: one switch whose cases are at most three statements each,
// and what is returned if none fits.
func isTable(f *ast.FuncDecl) bool {
	if f.Body == nil || len(f.Body.List) == 0 || len(f.Body.List) > 2 {
		return false
	}
	var cases *ast.BlockStmt
	switch s := f.Body.List[0].(type) {
	case *ast.SwitchStmt:
		cases = s.Body
	case *ast.TypeSwitchStmt:
		cases = s.Body
	default:
		return false
	}
	if len(f.Body.List) == 2 {
		if _, ok := f.Body.List[1].(*ast.ReturnStmt); !ok {
			return false
		}
	}
	for _, c := range cases.List {
		if len(c.(*ast.CaseClause).Body) > 3 {
			return false
		}
	}
	return true
}

// vague lists package names that do not limit what the package may hold.
var vague = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base", "lib"}

func TestPackages_NamedForTheirPurpose(t *testing.T) { check(t, named) }

func named(s *source) []string {
	name := strings.TrimSuffix(s.file.Name.Name, "_test")
	if slices.Contains(vague, name) || slices.Contains(vague, path.Base(s.pkg)) {
		return []string{s.fault(s.file.Package, "package name %s is vague: name it after what it provides, or move its functions to their callers", name)}
	}
	return nil
}

// seams are importable, so that a reader sees the structure, but are no API.
var seams = []string{
	"cluster", "cluster/backup", "cluster/clients", "cluster/core", "cluster/forming", "cluster/gossip", "cluster/identity", "cluster/inbox",
	"cluster/provisional", "cluster/reconcile", "cluster/replica", "cluster/roster", "cluster/spread", "cluster/transport", "raftlog", "storage",
}

func TestSeams_DocumentedAsNoAPI(t *testing.T) {
	docs := make(map[string]string)
	for _, s := range load(t) {
		if s.isLibrary() {
			docs[s.pkg] += strings.Join(strings.Fields(s.file.Doc.Text()), " ")
		}
	}
	for _, pkg := range seams {
		if !strings.Contains(docs[pkg], "a seam, not an API") {
			t.Errorf("package %s: the package comment must contain \"a seam, not an API\"", pkg)
		}
	}
}

func TestExported_HaveDocComments(t *testing.T) { check(t, explained) }

func explained(s *source) []string {
	if s.pkg != "." || !s.isLibrary() {
		return nil
	}
	var faults []string
	need := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if ast.IsExported(name.Name) && !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d.Text() != "" }) {
			faults = append(faults, s.fault(name.Pos(), "%s has no doc comment: state what it does, what blocks, which errors it returns, units, and what is not promised", name.Name))
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

// isAPI excludes methods of unexported types, and the two methods that every
// error type has.
func isAPI(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	return ast.IsExported(receiver(f)) && f.Name.Name != "Error" && f.Name.Name != "Unwrap"
}

// each calls need for the names of a declaration. A comment on a group does not
// count for its members.
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
