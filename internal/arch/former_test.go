package arch

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// Members that were removed become many in time, and nothing forgets them. So no list of them
// is searched one by one, and the machine never visits all of them.
func TestFormerMembers_NeverVisited(t *testing.T) { check(t, selective) }

func selective(s *source) (faults []string) {
	if s.isTest() || s.pkg != machine && s.pkg != "cluster" && !strings.HasPrefix(s.pkg, "cluster/") {
		return nil
	}
	fault := func(n ast.Node, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s: %s", s.fset.Position(n.Pos()), fmt.Sprintf(format, args...)))
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			called, of := types.ExprString(n.Fun), ""
			if len(n.Args) > 0 {
				of = strings.TrimSuffix(types.ExprString(n.Args[0]), "()")
			}
			linear := []string{"slices.Contains", "slices.ContainsFunc", "slices.Index", "slices.IndexFunc"}
			if of = of[strings.LastIndex(of, ".")+1:]; slices.Contains(linear, called) && strings.EqualFold(of, "removed") {
				fault(n, "a linear search of the removed members: use core.Includes")
			}
		case *ast.RangeStmt:
			if of := types.ExprString(n.X); s.pkg == machine && (strings.Contains(of, "former.") || of == "f.byID" || of == "f.ids") {
				fault(n, "a visit of all members that were ever removed")
			}
		}
		return true
	})
	return faults
}
