package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// What the library and its programs create is for their user only. Nothing but storage knows
// the operating system's file system: Pebble's creates files with mode 0666, and takes each
// shortage of the process for a failed disk.
func TestFiles_ForTheirUserOnly(t *testing.T) { checkAll(t, private) }

// openers are the functions of package os that create something, and the position of the mode
// among their arguments; -1: they take none, and create it for all users.
var openers = map[string]int{"Create": -1, "OpenFile": 2, "WriteFile": 2, "Mkdir": 1, "MkdirAll": 1, "CopyFS": -1}

// testers are programs that run for tests and measurements, on machines of their own.
var testers = []string{"bench", "tools", "contrib/browsertest"}

func private(s *source) []string {
	if s.isTest() || s.isGenerated() || slices.ContainsFunc(testers, func(p string) bool { return within(s.pkg, p) }) {
		return nil
	}
	var faults []string
	s.selectors(func(pkg, name string, at token.Pos) {
		if pkg == "github.com/cockroachdb/pebble/v2/vfs" && name == "Default" && s.pkg != "storage" {
			faults = append(faults, s.fault(at, "vfs.Default outside storage: its files are open to all users"))
		}
	})
	calls := make(map[token.Pos]string) // of the openers
	s.selectors(func(pkg, name string, at token.Pos) {
		if _, ok := openers[name]; ok && pkg == "os" {
			calls[at] = name
		}
	})
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || calls[call.Fun.Pos()] == "" {
			return true
		}
		name := calls[call.Fun.Pos()]
		if mode := openers[name]; mode < 0 || openToOthers(call.Args[mode]) {
			faults = append(faults, s.fault(call.Pos(), "os.%s creates what other users can read: use mode 0600, for directories 0700", name))
		}
		return true
	})
	return faults
}

// openToOthers reports whether a mode is a number with bits of the group or of others.
func openToOthers(mode ast.Expr) bool {
	number, ok := mode.(*ast.BasicLit)
	if !ok {
		return false // a constant, such as storage's
	}
	bits, err := strconv.ParseUint(number.Value, 0, 32)
	return err != nil || bits&0o077 != 0
}
