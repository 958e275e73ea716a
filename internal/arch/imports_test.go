package arch

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// floors is the picture of docs/ARCHITECTURE.md: for each package, the packages
// of this module that it may import. All of them are below it.
//
//	floor 4   conclave           makes Go errors; joins client and cluster by an adapter
//	floor 3   internal/client    declares the interface to a group; does not know cluster
//	          internal/remote    implements it over a connection to a member
//	floor 2   cluster            cluster/core, cluster/transport and the other folders in it serve cluster only; the root knows cluster/backup, cluster/clients and cluster/replica
//	floor 1   raftlog
//	floor 0   storage
//	beside    internal/machine   internal/machine/ordered   internal/machine/slots   internal/machine/quota   internal/fact   internal/leaseclock   internal/linger    internal/maxhold    internal/tickets   internal/metrics   internal/survey   internal/wait   internal/wire      internal/display   internal/attempts   internal/loopback   internal/appcall   internal/logqueue   internal/version   conclaveprom
//	for tests internal/machine/reference           internal/memnet   internal/memdisk   internal/hostile   internal/testport   internal/grouptest   conclavetest
//	above     conclavehttp       contrib/consulapi      fencing
var floors = map[string][]string{
	".":                              {"internal/client", "internal/remote", "cluster", "cluster/backup", "cluster/clients", "cluster/replica", "storage", "internal/appcall", "internal/budget", "internal/fact", "internal/logqueue", "internal/machine", "internal/memberlog", "internal/metrics", "internal/survey", "internal/tickets", "internal/version", "internal/wire"},
	"internal/client":                {"internal/fact", "internal/leaseclock", "internal/linger", "internal/machine", "internal/maxhold", "internal/metrics", "internal/pause", "internal/tickets", "internal/wire"},
	"internal/fact":                  {"internal/wire"},
	"internal/linger":                {},
	"internal/leaseclock":            {}, // the holder's clock, suspended time included
	"internal/maxhold":               {"internal/leaseclock"},
	"internal/remote":                {"cluster/transport", "internal/appcall", "internal/budget", "internal/client", "internal/fact", "internal/machine", "internal/tickets", "internal/wait", "internal/wire"},
	"cluster":                        {"cluster/backup", "cluster/clients", "cluster/core", "cluster/crash", "cluster/forming", "cluster/gossip", "cluster/identity", "cluster/provisional", "cluster/replica", "cluster/roster", "cluster/spread", "cluster/transport", "raftlog", "storage", "internal/appcall", "internal/fact", "internal/tickets", "internal/version", "internal/wait", "internal/wire"},
	"cluster/backup":                 {"storage", "internal/wire"},
	"cluster/clients":                {"cluster/core", "cluster/transport", "internal/tickets", "internal/wait", "internal/wire"},
	"cluster/core":                   {"cluster/core/latest", "cluster/inbox", "cluster/reconcile", "raftlog", "storage", "internal/budget", "internal/fact", "internal/metrics", "internal/tickets", "internal/wire"},
	"cluster/core/latest":            {"internal/wire"},
	"cluster/crash":                  {"internal/wire"},
	"cluster/forming":                {"cluster/core", "cluster/identity", "cluster/roster", "cluster/transport", "raftlog", "internal/wait", "internal/wire"},
	"cluster/gossip":                 {"cluster/transport", "cluster/transport/gossipfilter", "internal/wait", "internal/wire"},
	"cluster/identity":               {"raftlog", "storage", "internal/fact", "internal/wait", "internal/wire"},
	"cluster/inbox":                  {"internal/budget", "internal/wire"},
	"cluster/provisional":            {"cluster/core", "internal/wire"},
	"cluster/reconcile":              {"internal/display", "internal/fact", "internal/wire"},
	"cluster/replica":                {"cluster/backup", "cluster/core", "cluster/identity", "cluster/transport", "raftlog", "storage", "internal/budget", "internal/fact", "internal/metrics", "internal/tickets", "internal/wait", "internal/wire"},
	"cluster/roster":                 {"cluster/core", "raftlog", "storage", "internal/fact", "internal/version", "internal/wait", "internal/wire"},
	"cluster/spread":                 {},
	"cluster/transport":              {"cluster/crash", "cluster/transport/gossipfilter", "cluster/transport/queue", "cluster/transport/slots", "internal/appcall", "internal/wire"},
	"cluster/transport/queue":        {},
	"cluster/transport/slots":        {"internal/wire"},
	"cluster/transport/gossipfilter": {"internal/wire"},
	"raftlog":                        {"storage", "internal/wire"},
	"storage":                        {},
	"internal/machine":               {"internal/machine/ordered", "internal/machine/quota", "internal/machine/slots", "internal/fact", "internal/wire"},
	"internal/machine/ordered":       {},
	"internal/machine/quota":         {},
	"internal/machine/slots":         {"internal/machine/ordered"},
	"internal/metrics":               {},
	"internal/budget":                {}, // what groups of a process share of its memory
	"internal/appcall":               {}, // calls functions of the application
	"internal/logqueue":              {}, // queues lines for the application's Logger
	"internal/memberlog":             {"internal/display", "internal/wire"},
	"internal/pause":                 {"internal/leaseclock"},
	"internal/survey":                {"internal/machine", "internal/metrics", "internal/wire"}, // measures the group's state over time
	"internal/tickets":               {"internal/budget", "internal/wire"},
	"internal/wait":                  {}, // how goroutines wait for each other
	"internal/version":               {}, // names the build, for people
	"internal/wire":                  {},
	"internal/machine/reference":     {"internal/fact", "internal/wire"}, // imported by tests only
	"internal/sim":                   {},                                 // its tests import what they run
	"internal/memnet":                {},                                 // an in-memory network, for tests
	"internal/memdisk":               {},                                 // an in-memory disk, for tests
	"internal/hostile":               {"internal/wire"},                  // a lying client, for tests
	"internal/testport":              {},                                 // addresses on loopback, for tests
	"internal/grouptest":             {},                                 // whole groups, with the folders below; its files are tests
	"internal/arch":                  {},
	"conclaveprom":                   {"."},
	"conclavetest":                   {".", "cluster", "internal/memnet"}, // cluster for Seams only
	"internal/display":               {},
	"internal/loopback":              {},
	"internal/attempts":              {}, // limits failures of remote hosts
	"conclavehttp":                   {".", "internal/attempts", "internal/display", "internal/loopback"},
	"contrib/consulapi":              {".", "internal/loopback", "internal/logqueue"}, // and the standard library
	"fencing":                        {"."},                                           // and the standard library
	"examples":                       {".", "conclavehttp", "examples/oneprocess"},    // and each folder below
}

// outside lists for each dependency the packages that may import it. The longest
// matching entry counts. Every dependency is linked into every user's program.
var outside = map[string][]string{
	"github.com/cockroachdb/pebble/v2":     {"storage", "raftlog"},
	"github.com/cockroachdb/pebble/v2/vfs": {"storage", "raftlog", "cluster"},
	"go.etcd.io/raft/v3":                   {"raftlog", "cluster/core"},
	"go.etcd.io/raft/v3/raftpb":            {"raftlog", "cluster", "cluster/core", "cluster/forming", "cluster/provisional", "cluster/reconcile", "cluster/replica", "cluster/roster"},
	"github.com/hashicorp/memberlist":      {"cluster/gossip"},
	"github.com/google/btree":              {"internal/machine", "internal/machine/ordered", "internal/machine/slots"}, // also a dependency of memberlist
	"google.golang.org/protobuf":           {".", "internal/client", "internal/remote", "cluster", "cluster/backup", "cluster/clients", "cluster/core", "cluster/forming", "cluster/gossip", "cluster/identity", "cluster/provisional", "cluster/replica", "cluster/roster", "cluster/inbox", "cluster/transport", "raftlog", "internal/machine", "internal/wire", "internal/machine/reference", "internal/hostile"},
	"golang.org/x/sys/unix":                {".", "internal/leaseclock", "storage"}, // CLOCK_BOOTTIME, fallocate; also a dependency of Pebble
	"golang.org/x/sys/windows":             {"fencing"},                             // LockFileEx; Pebble links it already
	"github.com/prometheus/client_golang":  {"conclaveprom"},                        // Pebble links it already
	"go.uber.org/goleak":                   {"conclavetest"},
}

// Imports go strictly downward. Tests may import anything except programs.
func TestImports_GoDown(t *testing.T) { check(t, downward) }

func downward(s *source) []string {
	place := s.pkg
	for _, parent := range []string{"examples", "internal/grouptest"} {
		if within(s.pkg, parent) {
			place = parent
		}
	}
	allowed, known := floors[place]
	if !known {
		return []string{s.fault(s.file.Package, "package %s has no floor: add it to docs/ARCHITECTURE.md and to the table of this test", s.pkg)}
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
		case within(target, "examples") && !slices.Contains(allowed, target):
			faults = append(faults, s.fault(s.file.Package, "imports the program %s: move the shared code into a package", path))
		case !slices.Contains(allowed, target):
			faults = append(faults, s.fault(s.file.Package, "%s may not import %s: only %v are below it; have the floor above pass it in as a value or as an interface that this package declares",
				s.pkg, path, allowed))
		}
	}
	return faults
}

// A dependency is confined to few packages, so that it can be replaced there, and
// no test dependency is linked into users' programs.
func TestImports_DependenciesConfined(t *testing.T) { check(t, staysPut) }

func staysPut(s *source) []string {
	if s.isTest() || s.isProgram() {
		return nil
	}
	var faults []string
	for path := range s.imports() {
		first, _, _ := strings.Cut(path, "/")
		switch {
		case within(path, "testing") && s.pkg != "conclavetest":
			faults = append(faults, s.fault(s.file.Package, "%s is for tests: move the code into a _test.go file or into conclavetest", path))
		case within(path, module), !strings.Contains(first, "."): // this module's, or the standard library's
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
		return []string{s.fault(s.file.Package, "%s is a new dependency of every importer: avoid it, or give the reason in docs/ARCHITECTURE.md and add it to the table of this test", path)}
	case !slices.Contains(outside[entry], s.pkg):
		return []string{s.fault(s.file.Package, "%s is confined to %v: have one of them provide what is needed", path, outside[entry])}
	}
	return nil
}
