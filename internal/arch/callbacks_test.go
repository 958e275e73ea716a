package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

// The body of a loop over a sequence, and any other function of the caller, may panic or end its
// goroutine. What a function has to clean up after it has called one is in a defer.
func TestLibrary_CleanupBehindCallbacksIsDeferred(t *testing.T) { checkAll(t, deferred) }

// cleanups are names of functions that release something.
var cleanups = []string{"finish", "release", "Release", "Close", "Unlock", "RUnlock", "stop", "Stop", "cancel", "leave", "leavePlace", "end", "done", "Done", "Rollback"}

// ofCallers are the names that functions of the application have where they are parameters. Others
// are functions of this module.
var ofCallers = []string{"yield", "receive", "f", "lead", "read", "verify"}

// called lists where functions of the application arrive.
var called = []string{".", "internal/remote", "internal/client", "conclavehttp", "conclaveprom", "fencing", "contrib"}

func deferred(s *source) []string {
	arrives := func(pkg string) bool { return s.pkg == pkg || pkg != "." && within(s.pkg, pkg) }
	if s.isTest() || s.isGenerated() || !slices.ContainsFunc(called, arrives) {
		return nil
	}
	var faults []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch f := n.(type) {
		case *ast.FuncDecl:
			if f.Body != nil {
				faults = append(faults, s.undeferred(f.Type, f.Body)...)
			}
		case *ast.FuncLit:
			faults = append(faults, s.undeferred(f.Type, f.Body)...)
		}
		return true
	})
	return faults
}

// undeferred finds the cleanups of a function that come behind a call of one of its parameters, or
// stand in a loop with one.
func (s *source) undeferred(signature *ast.FuncType, body *ast.BlockStmt) (faults []string) {
	callbacks := make(map[string]bool)
	for _, p := range signature.Params.List {
		if _, ok := p.Type.(*ast.FuncType); ok {
			for _, name := range p.Names {
				callbacks[name.Name] = slices.Contains(ofCallers, name.Name)
			}
		}
	}
	first := firstCall(body, callbacks, token.NoPos)
	if first == token.NoPos {
		return nil
	}
	var look func(ast.Node) bool
	look = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.DeferStmt:
			return false
		case *ast.CommClause: // its receive is a wait
			for _, then := range n.Body {
				ast.Inspect(then, look)
			}
			return false
		case *ast.ExprStmt:
			if n.Pos() > first && cleansUp(n.X) {
				faults = append(faults, s.fault(n.Pos(), "a cleanup behind a call of the caller's function, which may not return: use a defer"))
			}
		}
		return true
	}
	ast.Inspect(body, look)
	return faults
}

// firstCall returns where one of these functions may be called first: if that is in a loop, where the
// loop begins.
func firstCall(body ast.Node, callbacks map[string]bool, loop token.Pos) (first token.Pos) {
	ast.Inspect(body, func(n ast.Node) bool {
		if first != token.NoPos {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit, *ast.DeferStmt, *ast.GoStmt:
			return false
		case *ast.ForStmt, *ast.RangeStmt:
			if n != body && loop == token.NoPos {
				first = firstCall(n, callbacks, n.Pos())
				return false
			}
		case *ast.CallExpr:
			if name, ok := n.Fun.(*ast.Ident); ok && callbacks[name.Name] {
				if first = n.Pos(); loop != token.NoPos {
					first = loop
				}
			}
		}
		return true
	})
	return first
}

func cleansUp(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.UnaryExpr:
		return x.Op == token.ARROW // frees a place
	case *ast.CallExpr:
		switch f := x.Fun.(type) {
		case *ast.Ident:
			return slices.Contains(cleanups, f.Name)
		case *ast.SelectorExpr:
			return slices.Contains(cleanups, f.Sel.Name)
		}
	}
	return false
}
