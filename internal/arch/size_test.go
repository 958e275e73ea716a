package arch

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"testing"
)

// A type with more methods, or in more files, is several ideas, and a reader of a package with more files does not
// find one by its name. An exception has its reason and its size: it may shrink, and then the
// entry shrinks with it, and not grow.
const (
	maxMethods     = 60
	maxMethodFiles = 8
	maxFiles       = 30
)

type size struct {
	methods, files int
	why            string
}

var largeTypes = map[string]size{
	"..Group":                          {37, 18, "the nouns of the API: one file for each"},
	"..Node":                           {48, 12, "the API of a member: one file for each part"},
	"internal/machine.Machine":         {219, 37, "one atomic state, which each command changes as a whole; a file for each kind of command"},
	"internal/machine/reference.Model": {112, 12, "the machine's rules a second time: as many commands"},
	"contrib/consulapi.call":           {103, 17, "the endpoints: one file for each of Consul's"},
}

var largePackages = map[string]size{
	".":                {0, 54, "the API: one file for each noun; its groups, at a node and at a client"},
	"internal/client":  {0, 38, "leases, and what is held under them in each mode, share the order in which outcomes come"},
	"internal/machine": {0, 77, "one atomic state; a file for each kind of command"},
}

func TestTypes_HoldOneIdea(t *testing.T) {
	report(t, typeSizes(load(t), largeTypes))
}

func typeSizes(sources []*source, exceptions map[string]size) (faults []string) {
	methods, files := make(map[string]int), make(map[string]map[string]bool)
	for _, s := range sources {
		if s.isTest() || s.isGenerated() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				name := s.pkg + "." + receiver(f)
				methods[name]++
				if files[name] == nil {
					files[name] = make(map[string]bool)
				}
				files[name][s.path] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		faults = append(faults, outgrown(name, size{methods: methods[name], files: len(files[name])}, size{methods: maxMethods, files: maxMethodFiles}, exceptions)...)
	}
	return faults
}

// outgrown compares a size with its limit, or with its exception.
func outgrown(name string, is, limit size, exceptions map[string]size) []string {
	e, excepted := exceptions[name]
	fits := is.methods <= limit.methods && is.files <= limit.files
	switch {
	case excepted && fits:
		return []string{name + " is within the limits now: remove its exception"}
	case excepted && (is.methods > e.methods || is.files > e.files):
		return []string{fmt.Sprintf("%s has %d methods in %d files, and had %d in %d: give the new idea a type or a package of its own", name, is.methods, is.files, e.methods, e.files)}
	case excepted && (is.methods < e.methods || is.files < e.files):
		return []string{fmt.Sprintf("%s has shrunk to %d methods in %d files: lower its exception", name, is.methods, is.files)}
	case !excepted && !fits:
		return []string{fmt.Sprintf("%s has %d methods in %d files, at most %d in %d: split it by its ideas", name, is.methods, is.files, limit.methods, limit.files)}
	}
	return nil
}

func TestPackages_AreSmall(t *testing.T) {
	files := make(map[string]int)
	for _, s := range load(t) {
		if !s.isTest() && !s.isGenerated() {
			files[s.pkg]++
		}
	}
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		faults = append(faults, outgrown(name, size{files: files[name]}, size{files: maxFiles}, largePackages)...)
	}
	report(t, faults)
}

func TestTypes_SizesCompared(t *testing.T) {
	limit, exceptions := size{methods: 2, files: 1}, map[string]size{"x.Large": {methods: 5, files: 2}}
	for _, test := range []struct {
		name string
		is   size
		want int
	}{
		{"x.T", size{methods: 2, files: 1}, 0}, {"x.T", size{methods: 3, files: 1}, 1}, {"x.T", size{methods: 1, files: 2}, 1},
		{"x.Large", size{methods: 5, files: 2}, 0}, {"x.Large", size{methods: 6, files: 2}, 1}, {"x.Large", size{methods: 4, files: 2}, 1},
		{"x.Large", size{methods: 2, files: 1}, 1},
	} {
		if got := outgrown(test.name, test.is, limit, exceptions); len(got) != test.want {
			t.Errorf("%s with %+v: %q", test.name, test.is, got)
		}
	}
}
