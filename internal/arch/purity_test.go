package arch

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const machine = "internal/machine"

// machines are the packages of which the machine consists.
var machines = []string{machine, machine + "/ordered", machine + "/slots", machine + "/quota"}

// pure lists the packages that the machine may import: none of them gives access
// to a clock, a random source, a file, a network or a goroutine.
var pure = []string{
	"bytes", "cmp", "container/heap", "container/list", "encoding/binary", "encoding/json", "errors", "fmt", "hash/crc32", "iter",
	"maps", "math", "math/bits", "slices", "sort", "strconv", "strings", "unicode", "unicode/utf8",
	"github.com/google/btree", "google.golang.org/protobuf/proto", module + "/internal/fact", module + "/internal/wire",
	module + "/internal/machine/ordered", module + "/internal/machine/slots", module + "/internal/machine/quota",
}

// The machine is a pure function of the log: two members that have applied the
// same entries have equal state, to the byte. A range over a map whose order
// cannot affect the state needs a comment on its line with the reason:
//
//	for name := range m.locks { // order: only counted
func TestMachine_IsPure(t *testing.T) {
	for _, pkg := range machines {
		var files []*source
		for _, s := range load(t) {
			if s.pkg == pkg && !s.isTest() {
				files = append(files, s)
			}
		}
		if len(files) == 0 {
			t.Fatalf("no files in %s: set the constant machine to the package that holds the machine now", pkg)
		}
		report(t, impurities(t, files, exported(t, "./"+pkg)))
	}
}

// exported returns a lookup of the export data of packages and of their
// dependencies.
func exported(t *testing.T, pkgs ...string) importer.Lookup {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, pkgs...)...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	where := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		where[path] = file
	}
	return func(path string) (io.ReadCloser, error) {
		if where[path] == "" {
			return nil, fmt.Errorf("%s is not a dependency of %v", path, pkgs)
		}
		return os.Open(where[path])
	}
}

// impurities type-checks the files of one package and finds what is impure.
func impurities(t *testing.T, sources []*source, imports importer.Lookup) []string {
	t.Helper()
	var files []*ast.File
	var faults []string
	for _, s := range sources {
		files = append(files, s.file)
		faults = append(faults, s.impureImports()...)
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object)}
	fset := sources[0].fset
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", imports)}
	if _, err := config.Check(module+"/"+sources[0].pkg, fset, files, info); err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		p := purity{source: s, info: info, orders: s.comments("// order: "), sorted: make(map[ast.Expr]bool)}
		ast.Inspect(s.file, p.visit)
		faults = append(faults, p.faults...)
	}
	return faults
}

func (s *source) impureImports() []string {
	var faults []string
	for path := range s.imports() {
		if !slices.Contains(pure, path) {
			faults = append(faults, s.fault(s.file.Package, "the machine may not import %s: take inputs from the command, and return effects in a fact.Result", path))
		}
	}
	return faults
}

// purity walks one file.
type purity struct {
	*source
	info   *types.Info
	orders map[int]bool      // lines with an "// order: " comment
	sorted map[ast.Expr]bool // calls whose result is sorted immediately
	faults []string
}

func (p *purity) add(at token.Pos, format string, args ...any) {
	p.faults = append(p.faults, p.fault(at, format, args...))
}

func (p *purity) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
		p.add(n.Pos(), "the machine has no goroutines and no channels: return effects in a fact.Result")
	case *ast.RangeStmt:
		p.ranges(n)
	case *ast.CallExpr:
		p.calls(n)
	}
	if x, ok := n.(ast.Expr); ok {
		p.number(x)
	}
	return true
}

func (p *purity) number(x ast.Expr) {
	if basic, ok := p.info.TypeOf(x).(*types.Basic); ok && basic.Info()&(types.IsFloat|types.IsComplex) != 0 {
		p.add(x.Pos(), "floating point may round differently on another processor: use integers, and nanoseconds for time")
	}
}

func (p *purity) ranges(n *ast.RangeStmt) {
	kind := p.info.TypeOf(n.X)
	if kind == nil {
		return
	}
	switch kind.Underlying().(type) {
	case *types.Chan:
		p.add(n.Pos(), "the machine has no channels: return effects in a fact.Result")
	case *types.Map:
		if !p.orders[p.fset.Position(n.Pos()).Line] {
			p.add(n.Pos(), "the order of a map differs between members: range over slices.Sorted(maps.Keys(...)), or give the reason why the order has no effect in an \"// order: \" comment")
		}
	}
}

// calls allows the iterators of package maps only as arguments of a sort.
func (p *purity) calls(n *ast.CallExpr) {
	switch p.called(n) {
	case "slices.Sorted", "slices.SortedFunc", "slices.SortedStableFunc":
		p.sorted[n.Args[0]] = true
	case "maps.Keys", "maps.Values", "maps.All":
		if !p.sorted[n] && !p.orders[p.fset.Position(n.Pos()).Line] {
			p.add(n.Pos(), "the order of a map differs between members: pass this to slices.Sorted or slices.SortedFunc")
		}
	}
}

// called returns the name of the called function of another package, or "".
func (p *purity) called(n *ast.CallExpr) string {
	selector, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	f, ok := p.info.Uses[selector.Sel].(*types.Func)
	if !ok || f.Pkg() == nil {
		return ""
	}
	return f.Pkg().Path() + "." + f.Name()
}
