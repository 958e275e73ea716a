package arch

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// onces lists the library's files that use package sync's Once, OnceFunc and OnceValue, and
// why. The second caller waits in a mutex until the first is done: that must take no time.
var onces = map[string]string{
	"cluster/gossip/probe_watch.go": "it closes a channel",
	"conclavehttp/console.go":       "it closes a channel",
	"internal/client/lease.go":      "it makes an object",
	"internal/client/order.go":      "it changes a counter",
	"internal/appcall/conn.go":      "it closes a channel and starts a goroutine",
	"internal/appcall/listener.go":  "it closes a channel and starts a goroutine",
	"internal/wire/bounds.go":       "it computes a table",
	"storage/failstop.go":           "it closes a channel",
	"storage/shortage.go":           "it closes a channel",
}

// In a bubble of testing/synctest, virtual time stands still while a goroutine waits for a
// mutex, and sync.Once is one. No context ends such a wait either.
func TestLibrary_WaitsInNoOnce(t *testing.T) {
	used := make(map[string]bool)
	for _, s := range load(t) {
		report(t, waitingOnce(s, used))
	}
	for path := range onces {
		if !used[path] {
			t.Errorf("%s uses no sync.Once: delete it from the list of this test", path)
		}
	}
}

func waitingOnce(s *source, used map[string]bool) []string {
	if !s.isLibrary() {
		return nil
	}
	var faults []string
	s.selectors(func(pkg, name string, at token.Pos) {
		if pkg != "sync" || !strings.HasPrefix(name, "Once") {
			return
		}
		used[s.path] = true
		if onces[s.path] == "" {
			faults = append(faults, s.fault(at, "sync.%s: have the first caller found by an atomic.Bool and the others wait for a channel; if its function takes no time, add the file to the list of this test", name))
		}
	})
	return faults
}

// blocking are methods, of whatever type, that wait: for goroutines, the network, the disk or
// another member.
var blocking = []string{"Wait", "Accept", "Dial", "DialContext", "SetLocal", "Leave", "Shutdown", "Exec", "Flush", "Sync", "Read", "Write", "Page"}

// momentary lists the functions of the library that seem to wait under a mutex, and why they
// do not.
var momentary = map[string]string{
	"internal/client/acquisition.go: acquisition.abandon":    "the result of a decided request is in its channel",
	"internal/client/acquisition.go: acquisition.Deliver":    "the channel has room for the one place",
	"internal/client/acquisition.go: acquisition.decide":     "the channel has room for the one result",
	"internal/client/acquisition.go: acquisition.Fail":       "the channel has room for the one result",
	"internal/client/shared_tenure.go: sharedTenure.answer":  "the channels have room for the one result",
	"internal/client/shared_tenure.go: sharedTenure.granted": "the channels have room for the one result",
	"internal/client/shared_tenure.go: sharedRequest.queued": "the channel has room for the one place",
	"internal/client/tenure.go: tenure.leave":                "the Leave of a linger.Tenure changes memory",
	"internal/client/tenure.go: tenure.grant":                "the channel has room for the one result",
	"internal/client/tenure.go: tenure.next":                 "the channel has room for the one result",
	"internal/client/tenure.go: tenure.request":              "the channel has room for the one result",
	"internal/client/tenure_trace.go: tenure.put":            "the channel has room for the one place",
	"internal/remote/asking.go: asking.answered":             "it writes to memory",
	"internal/remote/asking.go: question.Read":               "it reads from memory",
}

// A mutex guards memory. What waits under one makes everything wait that needs the mutex,
// without an end that a context could set, and stops the time of a bubble.
func TestLibrary_HoldsNoMutexOverWaiting(t *testing.T) {
	packages := make(map[string][]*source)
	for _, s := range load(t) {
		if s.isLibrary() {
			packages[s.pkg] = append(packages[s.pkg], s)
		}
	}
	used := make(map[string]bool)
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		report(t, heldWhileWaiting(packages[pkg], used))
	}
	for name := range momentary {
		if !used[name] {
			t.Errorf("%s holds no mutex over what seems to wait: delete it from the list of this test", name)
		}
	}
}

// heldWhileWaiting finds the functions of a package that wait while they hold a mutex,
// themselves or in functions of the package that they call.
func heldWhileWaiting(pkg []*source, used map[string]bool) []string {
	w := waiting{
		conditions: conditions(pkg), calls: resolve(pkg), functions: make(map[types.Object]bool),
		application: pkg[0].pkg == "internal/appcall",
	}
	for _, f := range functions(pkg) {
		if o := w.calls[f.decl.Name]; o != nil { // nil: declared once more for another system
			w.functions[o] = false
		}
	}
	for again := true; again; {
		again = false
		for _, f := range functions(pkg) {
			name := f.name()
			if o := w.calls[f.decl.Name]; o != nil && !w.functions[o] && momentary[name] == "" && w.first(f.decl.Body) != nil {
				w.functions[o], again = true, true
			}
		}
	}
	var faults []string
	for _, f := range functions(pkg) {
		name := f.name()
		used[name] = w.first(f.decl.Body) != nil
		for _, at := range w.underMutex(f.decl) {
			if momentary[name] == "" {
				faults = append(faults, f.source.fault(at.Pos(), "%s waits while it holds a mutex: unlock before, or use a lock that is a channel; if it does not wait, add %q to the list of this test", nameOf(f.decl), name))
			}
		}
	}
	return faults
}

type function struct {
	source *source
	decl   *ast.FuncDecl
}

func (f function) name() string { return f.source.path + ": " + nameOf(f.decl) }

func functions(pkg []*source) (list []function) {
	for _, s := range pkg {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				list = append(list, function{s, f})
			}
		}
	}
	return list
}

// resolve returns what the names of functions in a package stand for. It knows no imported
// types: their methods stay out.
func resolve(pkg []*source) map[*ast.Ident]types.Object {
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	var files []*ast.File
	for _, s := range pkg {
		files = append(files, s.file)
	}
	_, _ = config.Check(pkg[0].pkg, pkg[0].fset, files, info) // the errors are those of the imports
	maps.Copy(info.Uses, info.Defs)
	return info.Uses
}

type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	return nil, errors.New(path + " is not needed")
}

// conditions returns the names of the fields of type sync.Cond, whose Wait unlocks.
func conditions(pkg []*source) map[string]bool {
	names := make(map[string]bool)
	for _, s := range pkg {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if f, ok := n.(*ast.Field); ok && strings.HasSuffix(typeName(f.Type), "Cond") {
				for _, name := range f.Names {
					names[name.Name] = true
				}
			}
			return true
		})
	}
	return names
}

func typeName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return typeName(x.X)
	case *ast.SelectorExpr:
		return x.Sel.Name
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// waiting knows what waits in a package.
type waiting struct {
	conditions map[string]bool
	calls      map[*ast.Ident]types.Object
	functions  map[types.Object]bool // of the package: whether it waits
	// application: the values of the package that are functions are the application's, which may wait.
	application bool
}

// first returns the first node of a function's body that waits. What a function literal does
// is done elsewhere.
func (w *waiting) first(body ast.Node) (found ast.Node) {
	ready := make(map[ast.Node]bool) // of a select with a default case
	ast.Inspect(body, func(n ast.Node) bool {
		if found != nil || n == nil || ready[n] {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit, *ast.GoStmt, *ast.DeferStmt:
			return false
		case *ast.SelectStmt:
			for _, clause := range n.Body.List {
				ready[clause.(*ast.CommClause).Comm] = true
			}
			if !ready[nil] {
				found = n
			}
		case *ast.SendStmt:
			found = n
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				found = n
			}
		case *ast.CallExpr:
			if w.call(n) {
				found = n
			}
		}
		return true
	})
	return found
}

func (w *waiting) call(c *ast.CallExpr) bool {
	name, ok := c.Fun.(*ast.Ident)
	if f, isMethod := c.Fun.(*ast.SelectorExpr); isMethod {
		on, _ := f.X.(*ast.SelectorExpr)
		if f.Sel.Name == "Wait" && on != nil && w.conditions[on.Sel.Name] {
			return false
		}
		name, ok = f.Sel, true
	}
	if !ok {
		return false
	}
	if _, isValue := w.calls[name].(*types.Var); isValue && w.application {
		return true
	}
	waits, known := w.functions[w.calls[name]]
	return waits || !known && slices.Contains(blocking, name.Name)
}

// underMutex returns what waits in a function while it holds a mutex.
func (w *waiting) underMutex(f *ast.FuncDecl) (found []ast.Node) {
	var block func(list []ast.Stmt, held []string) // the mutexes
	block = func(list []ast.Stmt, held []string) {
		for _, s := range list {
			switch s := s.(type) {
			case *ast.ExprStmt:
				switch of, name := method(s.X); name {
				case "Lock", "RLock":
					held = append(slices.Clone(held), of)
					continue
				case "Unlock", "RUnlock":
					held = slices.DeleteFunc(slices.Clone(held), func(other string) bool { return other == of })
					continue
				}
			case *ast.DeferStmt:
				continue
			}
			inner, heads := partsOf(s)
			for _, b := range inner {
				block(b, held)
			}
			for _, head := range heads {
				if n := w.first(head); len(held) > 0 && n != nil {
					found = append(found, n)
				}
			}
		}
	}
	block(f.Body.List, nil)
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if literal, ok := n.(*ast.FuncLit); ok {
			block(literal.Body.List, nil)
		}
		return true
	})
	return found
}

// method returns the name of the method that an expression calls without arguments, and of what.
func method(x ast.Expr) (of, name string) {
	if call, ok := x.(*ast.CallExpr); ok && len(call.Args) == 0 {
		if f, ok := call.Fun.(*ast.SelectorExpr); ok {
			return types.ExprString(f.X), f.Sel.Name
		}
	}
	return "", ""
}

// partsOf returns the lists of statements in a statement, and what it does besides them.
func partsOf(s ast.Stmt) (blocks [][]ast.Stmt, heads []ast.Node) {
	add := func(body *ast.BlockStmt, parts ...ast.Node) {
		blocks = append(blocks, body.List)
		for _, c := range body.List {
			if c, ok := c.(*ast.CaseClause); ok {
				blocks = append(blocks, c.Body)
			}
		}
		heads = append(heads, parts...)
	}
	switch s := s.(type) {
	case *ast.BlockStmt:
		add(s)
	case *ast.IfStmt:
		add(s.Body, s.Init, s.Cond)
		if s.Else != nil {
			b, h := partsOf(s.Else)
			blocks, heads = append(blocks, b...), append(heads, h...)
		}
	case *ast.ForStmt:
		add(s.Body, s.Init, s.Cond, s.Post)
	case *ast.RangeStmt:
		add(s.Body, s.X)
	case *ast.SwitchStmt:
		add(s.Body, s.Init, s.Tag)
	case *ast.TypeSwitchStmt:
		add(s.Body, s.Init, s.Assign)
	case *ast.CaseClause: // its body is one of the blocks
	case *ast.LabeledStmt:
		return partsOf(s.Stmt)
	default:
		heads = []ast.Node{s}
	}
	return blocks, slices.DeleteFunc(heads, isNil)
}

func isNil(n ast.Node) bool { return n == nil || reflect.ValueOf(n).IsNil() }
