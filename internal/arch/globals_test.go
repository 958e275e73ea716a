package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// constants are package-level variables that never change after their
// initialization; Go has no constants of their types.
var constants = map[string]string{
	"internal/client/fault.go: kindNames":             "an array that is only indexed",
	"conclavehttp/console_assets.go: assets":          "go:embed needs a package-level variable; an embed.FS is only read",
	"internal/version/version.go: release":            "set by the linker only",
	"internal/wire/bounds.go: shapes":                 "a map that is only read, made when it is first needed",
	"errors.go: refusals":                             "a map that is only read",
	"cluster/core/reads.go: errTooManyReads":          "a string with the number of a constant",
	"cluster/clients/requests.go: errTooManyRequests": "likewise",
}

// makers lists the functions whose results never change.
var makers = map[string][]string{
	"errors":          {"New"},
	"fmt":             {"Errorf"},
	"hash/crc32":      {"MakeTable"},
	"hash/crc64":      {"MakeTable"},
	"regexp":          {"MustCompile"},
	"encoding/base64": {"NewEncoding"},
}

// Two nodes in one process must share no state.
func TestLibrary_NoGlobalState(t *testing.T) {
	used := make(map[string]bool)
	for _, s := range load(t) {
		report(t, globals(s, used))
	}
	for name := range constants {
		if !used[name] {
			t.Errorf("%s does not exist: delete it from the list of this test", name)
		}
	}
}

func globals(s *source, used map[string]bool) []string {
	if !s.isLibrary() {
		return nil
	}
	var faults []string
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				faults = append(faults, s.fault(d.Pos(), "init function: initialize where a node is opened"))
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				faults = append(faults, s.variables(d, used)...)
			}
		}
	}
	return faults
}

func (s *source) variables(d *ast.GenDecl, used map[string]bool) []string {
	var faults []string
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		for i, ident := range v.Names {
			name := s.path + ": " + ident.Name
			used[name] = true
			switch {
			case ident.Name == "_", constants[name] != "":
			case i < len(v.Values) && s.isMade(v.Values[i]):
			default:
				faults = append(faults, s.fault(ident.Pos(), "package-level variable %s: make it a constant, a function, or a field of its owner; if it never changes, add %q to the list of this test", ident.Name, name))
			}
		}
	}
	return faults
}

// isMade recognizes sentinel errors, also aliases of another package's, and
// precomputed tables.
func (s *source) isMade(x ast.Expr) bool {
	if other, ok := x.(*ast.SelectorExpr); ok && strings.HasPrefix(other.Sel.Name, "Err") {
		return true
	}
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := selector.X.(*ast.Ident)
	if !ok {
		return false
	}
	for path, names := range makers {
		if s.imports()[path] == pkg.Name && slices.Contains(names, selector.Sel.Name) {
			return true
		}
	}
	return false
}
