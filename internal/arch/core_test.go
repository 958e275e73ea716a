package arch

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"testing"
)

const core = "cluster/core"

// drivers lists what the core must leave to its driver, so that a simulation
// repeats.
var drivers = []struct {
	pkg   string
	names []string // patterns
}{
	{"time", []string{"Now", "Since", "Until", "After*", "New*", "Tick", "Sleep"}},
	{"math/rand/v2", []string{"[A-QS-Z]*"}}, // a *rand.Rand may be passed in
	{"math/rand", []string{"*"}},
	{"crypto/rand", []string{"*"}},
	{"os", []string{"*"}},
	{"net", []string{"*"}},
	{"sync", []string{"*"}},
	{"sync/atomic", []string{"*"}},
}

// Production and simulator run the same core: it has no goroutine, clock or
// random source of its own, and does no I/O.
func TestCore_NoClockGoroutineOrIO(t *testing.T) {
	if !slices.ContainsFunc(load(t), isCore) {
		t.Fatalf("no files in %s: set the constant core to the package that holds the core now", core)
	}
	check(t, driven)
}

func isCore(s *source) bool { return within(s.pkg, core) && !s.isTest() }

func driven(s *source) (faults []string) {
	if !isCore(s) {
		return nil
	}
	const instead = "return an effect for the driver, or take the value from an event"
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
