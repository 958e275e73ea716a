package arch

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"testing"
)

// forbidden lists what a library must not do in its host's process
// (docs/ARCHITECTURE.md).
var forbidden = []struct {
	pkg     string
	names   []string // patterns
	instead string
}{
	{"os", []string{"Exit"}, "return an error: only the host may end the process"},
	{"syscall", []string{"Exit", "Kill"}, "return an error: only the host may end the process"},
	{"os/signal", []string{"*"}, "offer a Close: signals are the host's"},
	{"log", []string{"Fatal*", "Panic*", "Print*", "Output", "Default", "SetOutput", "SetFlags", "SetPrefix", "Writer"}, "log to Config.Logger"},
	{"log/slog", []string{"Default", "SetDefault", "SetLogLoggerLevel", "Debug*", "Info*", "Warn*", "Error*", "Log", "LogAttrs", "With"}, "log to Config.Logger"},
	{"fmt", []string{"Print*"}, "return it, or log to Config.Logger: standard output is the host's"},
	{"flag", []string{"*"}, "take it from Config: the command line is the host's"},
	{"expvar", []string{"*"}, "return it as a value: the host decides what it publishes"},
}

func TestLibrary_TouchesNothingGlobal(t *testing.T) { check(t, guest) }

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

// selectors calls yield for each use of a name of another package.
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
		// The parser resolves every identifier except imported packages.
		if x, ok := selector.X.(*ast.Ident); ok && x.Obj == nil && paths[x.Name] != "" {
			yield(paths[x.Name], selector.Sel.Name, selector.Pos())
		}
		return true
	})
}

// sleepers lists the library's files that may sleep, and why.
var sleepers = map[string]string{
	"conclavetest/leak.go":       "the runtime reports no end of a goroutine, so the test polls for it",
	"cluster/gossip/gossip.go":   "memberlist does not report the end of its last probe",
	"internal/grouptest/poll.go": "nothing signals changes of a snapshot such as Status, or that a connection has broken",
}

// Code waits for events. A sleep is allowed in a synctest bubble, where time is
// virtual; in a select with other cases; and in a test whose subject is the time
// itself, if a comment on the line says why.
func TestCode_NeverSleeps(t *testing.T) { check(t, awake) }

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
		faults = append(faults, s.fault(at, "a sleep: wait for the event on a channel, use a synctest bubble, or, in a test whose subject is the time, state the reason on this line"))
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

// bareAfters finds the receives from time.After that are the only case, which
// makes them sleeps.
func (s *source) bareAfters() []token.Pos {
	after := make(map[token.Pos]bool)
	s.selectors(func(pkg, name string, at token.Pos) { after[at] = pkg == "time" && name == "After" })
	racing := make(map[ast.Node]bool) // receives in a select with other cases
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

// panics lists the functions that may panic, and why.
var panics = map[string]string{
	"cluster/core/raftlogger.go: raftLogger.Panic":  "raft requires that it does not return; the loop recovers and stops the node",
	"cluster/core/raftlogger.go: raftLogger.Panicf": "raft requires that it does not return; the loop recovers and stops the node",
	"locker.go: locker.Lock":                        "documented: sync.Locker returns no error",
	"locker.go: locker.Unlock":                      "documented: sync.Locker returns no error",
	"shard_run.go: shardRun.result":                 "documented: a panic of the application's work goes on to the caller of Run",
}

func TestLibrary_NeverPanics(t *testing.T) {
	used := make(map[string]bool)
	for _, s := range load(t) {
		report(t, panicking(s, used))
	}
	for name := range panics {
		if !used[name] {
			t.Errorf("%s does not panic: delete it from the list of this test", name)
		}
	}
}

// panicking finds the calls of panic, and marks in used the exceptions it met.
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
				faults = append(faults, s.fault(n.Pos(), "panic: return an error; a library must not crash its host. If the contract requires a panic, document it and add %q to the list of this test", name))
			}
			return true
		})
	}
	return faults
}

// nameOf returns a function's name, qualified by its receiver's type.
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
