package arch

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"testing"
)

const theCore = "cluster/core"

// drivers are what the core must leave to whoever drives it, or a simulation would
// not repeat.
var drivers = []struct {
	pkg   string
	names []string // patterns
}{
	{"time", []string{"Now", "Since", "Until", "After*", "New*", "Tick", "Sleep"}},
	{"math/rand/v2", []string{"[A-QS-Z]*"}}, // Rand itself is passed in
	{"math/rand", []string{"*"}},
	{"crypto/rand", []string{"*"}},
	{"os", []string{"*"}},
	{"net", []string{"*"}},
	{"sync", []string{"*"}},
	{"sync/atomic", []string{"*"}},
}

// The core is the same code in production and in the simulator: it has no
// goroutine, no clock and no dice of its own, and does no I/O.
func TestCoreLeavesItToItsDriver(t *testing.T) {
	if !slices.ContainsFunc(load(t), isCore) {
		t.Fatalf("no files in %s: let this test know where the core is now", theCore)
	}
	check(t, driven)
}

func isCore(s *source) bool { return s.pkg == theCore && !s.isTest() }

func driven(s *source) (faults []string) {
	if !isCore(s) {
		return nil
	}
	const instead = "have the driver do it, as an effect, or bring it, with an event"
	s.selectors(func(pkg, name string, at token.Pos) {
		for _, d := range drivers {
			if d.pkg == pkg && slices.ContainsFunc(d.names, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
				faults = append(faults, s.fault(at, "%s.%s in the core: %s", pkg, name, instead))
			}
		}
	})
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.GoStmt, *ast.SelectStmt:
			faults = append(faults, s.fault(n.Pos(), "a goroutine or a select in the core: %s", instead))
		}
		return true
	})
	return faults
}
