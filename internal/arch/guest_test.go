package arch

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"testing"
)

// A library is a guest in somebody's process (docs/ARCHITECTURE.md). What it
// must not do there:
var forbidden = []struct {
	pkg     string
	names   []string // patterns
	instead string
}{
	{"os", []string{"Exit"}, "return an error: whether the process ends is for its owner to decide"},
	{"syscall", []string{"Exit", "Kill"}, "return an error: whether the process ends is for its owner to decide"},
	{"os/signal", []string{"*"}, "offer a Close: signals are the host's"},
	{"log", []string{"Fatal*", "Panic*", "Print*", "Output", "Default", "SetOutput", "SetFlags", "SetPrefix", "Writer"}, "log to the *slog.Logger that came with the configuration"},
	{"log/slog", []string{"Default", "SetDefault", "SetLogLoggerLevel", "Debug*", "Info*", "Warn*", "Error*", "Log", "LogAttrs", "With"}, "log to the *slog.Logger that came with the configuration"},
	{"fmt", []string{"Print*"}, "return it, or log to the *slog.Logger that came with the configuration: standard output is the host's"},
	{"flag", []string{"*"}, "take it from the configuration: the command line is the host's"},
	{"expvar", []string{"*"}, "offer it as a value: what is published is for the host to decide"},
}

func TestGuestTouchesNothingGlobal(t *testing.T) { check(t, guest) }

func guest(s *source) []string {
	if !s.isLibrary() {
		return nil
	}
	var faults []string
	s.selectors(func(pkg, name string, at token.Pos) {
		for _, f := range forbidden {
			if f.pkg == pkg && slices.ContainsFunc(f.names, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
				faults = append(faults, s.fault(at, "%s.%s: %s", pkg, name, f.instead))
			}
		}
	})
	return faults
}

// selectors calls yield with each use of a name of another package.
func (s *source) selectors(yield func(pkg, name string, at token.Pos)) {
	paths := make(map[string]string)
	for path, name := range s.imports() {
		paths[name] = path
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		// The parser resolves every name of the file but those of imports.
		if x, ok := selector.X.(*ast.Ident); ok && x.Obj == nil && paths[x.Name] != "" {
			yield(paths[x.Name], selector.Sel.Name, selector.Pos())
		}
		return true
	})
}

// sleepers are the files of the library that may let time pass, and why.
var sleepers = map[string]string{
	"conclavetest/leak.go":       "nothing tells that a goroutine has ended, so it has to be looked for again",
	"internal/grouptest/poll.go": "nothing signals a change of what Status shows",
	"cluster/gossip.go":          "memberlist does not tell when its last probe has ended",
}

// Wait for events. Time may be let pass in a bubble of testing/synctest, where
// nobody waits for real; in a select with other ends; and in a test in which the
// time itself is what matters, if a comment on the line says so.
func TestNobodySleeps(t *testing.T) { check(t, awake) }

func awake(s *source) []string {
	_, bubble := s.imports()["testing/synctest"]
	if bubble && s.isTest() || s.isProgram() || sleepers[s.path] != "" {
		return nil
	}
	var faults []string
	argued := s.comments("// ")
	sleep := func(at token.Pos) {
		if s.isTest() && argued[s.fset.Position(at).Line] {
			return
		}
		faults = append(faults, s.fault(at, "a sleep: wait for the event itself, on a channel; or let time pass in a bubble of testing/synctest; or, in a test that is about the time, say why on this line"))
	}
	s.selectors(func(pkg, name string, at token.Pos) {
		if pkg == "time" && name == "Sleep" {
			sleep(at)
		}
	})
	for _, at := range s.bareAfters() {
		sleep(at)
	}
	return faults
}

// bareAfters finds the receives of time.After that nothing competes with: a
// sleep by another name.
func (s *source) bareAfters() []token.Pos {
	after := make(map[token.Pos]bool)
	s.selectors(func(pkg, name string, at token.Pos) { after[at] = pkg == "time" && name == "After" })
	racing := make(map[ast.Node]bool) // receives of a select that has other cases
	var found []token.Pos
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectStmt:
			for _, clause := range n.Body.List {
				racing[clause.(*ast.CommClause).Comm] = len(n.Body.List) > 1
			}
		case *ast.UnaryExpr:
			if call, ok := n.X.(*ast.CallExpr); ok && n.Op == token.ARROW && after[call.Pos()] {
				found = append(found, n.Pos())
			}
		}
		return !racing[n]
	})
	return found
}

// panics are the functions that may panic, and why.
var panics = map[string]string{
	"cluster/core/raftlogger.go: raftLogger.Panic":  "raft counts on it not to return; the loop recovers and stops the node",
	"cluster/core/raftlogger.go: raftLogger.Panicf": "raft counts on it not to return; the loop recovers and stops the node",
	"locker.go: locker.Lock":                        "documented: sync.Locker has no error to return",
	"locker.go: locker.Unlock":                      "documented: sync.Locker has no error to return",
}

func TestNobodyPanics(t *testing.T) {
	used := make(map[string]bool)
	for _, s := range load(t) {
		report(t, panicking(s, used))
	}
	for name := range panics {
		if !used[name] {
			t.Errorf("%s does not panic any more: strike it off the list of this test", name)
		}
	}
}

// panicking notes in used which permissions were needed.
func panicking(s *source, used map[string]bool) []string {
	if !s.isLibrary() {
		return nil
	}
	var faults []string
	for _, d := range s.file.Decls {
		name := s.path + ": " + nameOf(d)
		ast.Inspect(d, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.Ident)
			if !ok || f.Name != "panic" || f.Obj != nil {
				return true
			}
			used[name] = true
			if panics[name] == "" {
				faults = append(faults, s.fault(n.Pos(), "panic: return an error; a library must not crash its host. If the contract demands it, document it and add %q to the list of this test", name))
			}
			return true
		})
	}
	return faults
}

// nameOf is the function's name, with its receiver's.
func nameOf(d ast.Decl) string {
	f, ok := d.(*ast.FuncDecl)
	switch {
	case !ok:
		return "package level"
	case f.Recv == nil:
		return f.Name.Name
	}
	return receiver(f) + "." + f.Name.Name
}

func receiver(f *ast.FuncDecl) string {
	x := f.Recv.List[0].Type
	for {
		switch t := x.(type) {
		case *ast.StarExpr:
			x = t.X
		case *ast.IndexExpr:
			x = t.X
		case *ast.IndexListExpr:
			x = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}
