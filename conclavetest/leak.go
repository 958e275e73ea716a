package conclavetest

import (
	"runtime"
	"slices"
	"strings"
	"time"
)

// goroutines lists the IDs of those that there are.
func goroutines() map[string]bool {
	ids := make(map[string]bool)
	for _, g := range stacks() {
		ids[g.id()] = true
	}
	return ids
}

// leaked waits for the goroutines of a closed group to end, and returns the
// stacks of those that do not. A goroutine counts if a package of a node started
// it, so those of the test that are still inside a call of ours do not; nor do
// those that were there before.
//
// While another node lives in this process, of a test that runs in parallel or
// of the test's own, nobody can say whose a goroutine is. Then nothing is
// reported; who closes last finds it.
func leaked(before map[string]bool, patience time.Duration) []string {
	// Nothing tells that a goroutine has ended, so they have to be looked at
	// again and again. What Close has waited for is gone within microseconds.
	began := time.Now()
	for pause := time.Millisecond; ; pause *= 2 {
		var left []string
		for _, g := range stacks() {
			if g.ofLivingNode() {
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

// stack is one goroutine as the runtime prints it: a head, then a line for
// each call, the innermost first, and where each call is; last who started it.
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

// id is in the head: goroutine 42 [chan receive]:
func (s stack) id() string {
	head, _, _ := strings.Cut(string(s), " [")
	return head
}

// calls lists the functions, without where they are and who started them.
func (s stack) calls() []string {
	var calls []string
	for i, line := range strings.Split(string(s), "\n") {
		if i > 0 && !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "created by ") {
			calls = append(calls, line)
		}
	}
	return calls
}

// starter is the package of the function that the goroutine was started for.
func (s stack) starter() string {
	calls := s.calls()
	for _, call := range slices.Backward(calls) {
		switch p := packageOf(call); p {
		case "sync", "runtime/pprof", "runtime": // they run it for somebody
		default:
			return p
		}
	}
	return ""
}

// ofLivingNode tells a goroutine by which a node shows that it is there: being
// opened, running its loop, or on its way to the end. What is left of a node
// whose end was waited for is none of these.
func (s stack) ofLivingNode() bool {
	return slices.ContainsFunc(s.calls(), func(call string) bool {
		for _, f := range []string{".open(", "/cluster.(*Member).loop(", "/cluster.(*Member).tearDown(", ".(*Node).Close("} {
			if strings.HasPrefix(call, module+f) {
				return true
			}
		}
		return false
	})
}

const module = "github.com/conclave-go/conclave"

// ours says whether a package is part of a node or of this package, not of a
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

// packageOf cuts the package out of a call like
// github.com/cockroachdb/pebble/v2.(*DB).flush(0xc000123).
func packageOf(call string) string {
	slash := strings.LastIndexByte(call, '/') + 1
	dot := strings.IndexByte(call[slash:], '.')
	if dot < 0 {
		return ""
	}
	return call[:slash+dot]
}
