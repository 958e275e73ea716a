package arch

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// floors is the picture of docs/ARCHITECTURE.md: for each package, those of
// ours that it may import. All of them stand below it.
//
//	floor 3   conclave
//	floor 2   cluster            cluster/core, cluster/transport serve cluster only
//	floor 1   raftlog
//	floor 0   storage
//	beside    internal/machine   internal/wire
//	for tests internal/reference
var floors = map[string][]string{
	".":                  {"cluster", "storage", "internal/machine", "internal/wire"},
	"cluster":            {"cluster/core", "cluster/transport", "raftlog", "storage", "internal/wire"},
	"cluster/core":       {"raftlog", "storage", "internal/wire"},
	"cluster/transport":  {"internal/wire"},
	"raftlog":            {"storage", "internal/wire"},
	"storage":            {},
	"internal/machine":   {"internal/wire"},
	"internal/wire":      {},
	"internal/reference": {"internal/wire"}, // and nobody imports it but tests
	"internal/sim":       {},                // its tests import what they run
	"internal/arch":      {},
	"conclavetest":       {"."},
	"internal/memnet":    {},                                                   // for tests
	"internal/grouptest": {".", "cluster", "internal/memnet", "internal/wire"}, // for tests
	"examples":           {"."},                                                // and each folder below it
}

// outside says which packages may import what is not ours. The longest entry
// that fits counts. What is linked here is linked into every user's program.
var outside = map[string][]string{
	"github.com/cockroachdb/pebble/v2":     {"storage", "raftlog"},
	"github.com/cockroachdb/pebble/v2/vfs": {"storage", "raftlog", "cluster", "internal/grouptest"},
	"go.etcd.io/raft/v3":                   {"raftlog", "cluster/core"},
	"go.etcd.io/raft/v3/raftpb":            {"raftlog", "cluster", "cluster/core"},
	"github.com/hashicorp/memberlist":      {"cluster", "cluster/transport"},
	"github.com/google/btree":              {"internal/machine"}, // memberlist brings it anyway
	"google.golang.org/protobuf":           {".", "cluster", "cluster/core", "cluster/transport", "raftlog", "internal/machine", "internal/wire", "internal/reference", "internal/grouptest"},
	"golang.org/x/sys/unix":                {"."}, // the clock that suspend does not stop; Pebble brings the module anyway
	"go.uber.org/goleak":                   {"conclavetest"},
}

// Imports go strictly downward. Tests may reach for anything but a program.
func TestImportsGoDown(t *testing.T) { check(t, downward) }

func downward(s *source) []string {
	place := s.pkg
	if s.isProgram() {
		place = "examples"
	}
	if within(place, "internal/grouptest") {
		place = "internal/grouptest"
	}
	allowed, known := floors[place]
	if !known {
		return []string{s.fault(s.file.Package, "package %s has no floor: give it a place in docs/ARCHITECTURE.md and in the table of this test", s.pkg)}
	}
	var faults []string
	for path := range s.imports() {
		target, ours := strings.CutPrefix(path, module)
		target = strings.TrimPrefix(target, "/")
		if target == "" {
			target = "."
		}
		switch {
		case !ours || s.isTest() && !within(target, "examples"):
		case within(target, "examples"):
			faults = append(faults, s.fault(s.file.Package, "imports the program %s: move what is shared into a package", path))
		case !slices.Contains(allowed, target):
			faults = append(faults, s.fault(s.file.Package, "%s may not import %s: only %v are below it; let the floor above pass in what is needed, as a value or behind an interface that this package declares",
				s.pkg, path, allowed))
		}
	}
	return faults
}

// What comes from elsewhere stays where it belongs, so that it can be replaced
// there, and nothing that is for tests gets into users' programs.
func TestOutsideStaysPut(t *testing.T) { check(t, staysPut) }

func staysPut(s *source) []string {
	if s.isTest() || s.isProgram() {
		return nil
	}
	var faults []string
	for path := range s.imports() {
		first, _, _ := strings.Cut(path, "/")
		switch {
		case within(path, "testing") && s.pkg != "conclavetest" && s.pkg != "internal/grouptest":
			faults = append(faults, s.fault(s.file.Package, "%s is for tests: move this into a _test.go file or into conclavetest", path))
		case within(path, module), !strings.Contains(first, "."): // ours, or Go's
		default:
			faults = append(faults, s.placed(path)...)
		}
	}
	return faults
}

func (s *source) placed(path string) []string {
	entry := ""
	for prefix := range maps.Keys(outside) {
		if within(path, prefix) && len(prefix) > len(entry) {
			entry = prefix
		}
	}
	switch {
	case entry == "":
		return []string{s.fault(s.file.Package, "%s is a new dependency, and would be one of every importer: do without, or argue for it in docs/ARCHITECTURE.md and add it to the table of this test", path)}
	case !slices.Contains(outside[entry], s.pkg):
		return []string{s.fault(s.file.Package, "%s belongs to %v: ask them for what is needed in words of their own", path, outside[entry])}
	}
	return nil
}
