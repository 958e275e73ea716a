package conclavetest

import (
	"runtime"
	"slices"
	"strings"
	"time"
)

// goroutines returns the IDs of all goroutines.
func goroutines() map[string]bool {
	ids := make(map[string]bool)
	for _, g := range stacks() {
		ids[g.id()] = true
	}
	return ids
}

// leaked waits for the goroutines of a closed group to end, and returns the stacks of
// those that do not. It counts goroutines that a package of a node started, except those
// that existed before.
//
// While another node runs in this process, of a parallel test or of the test itself,
// the owner of a goroutine is unknown and nothing is reported. The group that is closed
// last finds it.
func leaked(before map[string]bool, patience time.Duration) []string {
	// Nothing signals the end of a goroutine. Those that Close has waited for end within
	// microseconds.
	began := time.Now()
	for pause := time.Millisecond; ; pause *= 2 {
		var left []string
		for _, g := range stacks() {
			if g.ofRunningNode() {
				return nil
			}
			if ours(g.starter()) && !before[g.id()] {
				left = append(left, string(g))
			}
		}
		if len(left) == 0 || time.Since(began) > patience {
			return left
		}
		time.Sleep(pause)
	}
}

// stack is one goroutine as the runtime prints it: a head, two lines for each call,
// the innermost first, and the place where it was started.
type stack string

func stacks() []stack {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			var list []stack
			for s := range strings.SplitSeq(strings.TrimSpace(string(buf[:n])), "\n\n") {
				list = append(list, stack(s))
			}
			return list
		}
	}
}

// ourStacks returns the stacks of all goroutines that a package of a node started.
func ourStacks() string {
	var list []string
	for _, g := range stacks() {
		if ours(g.starter()) {
			list = append(list, string(g))
		}
	}
	return strings.Join(list, "\n\n")
}

// id is in the head, such as goroutine 42 [chan receive]:
func (s stack) id() string {
	head, _, _ := strings.Cut(string(s), " [")
	return head
}

// calls returns the lines with functions, without the place where it was started.
func (s stack) calls() []string {
	var calls []string
	for i, line := range strings.Split(string(s), "\n") {
		if i > 0 && !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "created by ") {
			calls = append(calls, line)
		}
	}
	return calls
}

// starter returns the package of the function for which the goroutine was started.
func (s stack) starter() string {
	calls := s.calls()
	for _, call := range slices.Backward(calls) {
		switch p := packageOf(call); p {
		case "sync", "runtime/pprof", "runtime": // they run a function of another package
		default:
			return p
		}
	}
	return ""
}

// ofRunningNode reports whether the goroutine shows that a node is being opened, runs
// or is being closed. What remains of a closed node is none of these.
func (s stack) ofRunningNode() bool {
	return slices.ContainsFunc(s.calls(), func(call string) bool {
		for _, f := range []string{".Open(", "/cluster/replica.(*Replica).loop(", "/cluster.(*Member).tearDown(", ".(*Node).Close("} {
			if strings.HasPrefix(call, module+f) {
				return true
			}
		}
		return false
	})
}

const module = "github.com/conclave-go/conclave"

// ours reports whether a package is part of a node or of this package, and not of a
// test.
func ours(pkg string) bool {
	if strings.HasSuffix(pkg, "_test") {
		return false
	}
	return slices.ContainsFunc([]string{
		module,
		"github.com/cockroachdb/pebble",
		"github.com/hashicorp/memberlist",
		"go.etcd.io/raft",
	}, func(root string) bool { return pkg == root || strings.HasPrefix(pkg, root+"/") })
}

// packageOf returns the package of a call like
// github.com/cockroachdb/pebble/v2.(*DB).flush(0xc000123).
func packageOf(call string) string {
	slash := strings.LastIndexByte(call, '/') + 1
	dot := strings.IndexByte(call[slash:], '.')
	if dot < 0 {
		return ""
	}
	return call[:slash+dot]
}
