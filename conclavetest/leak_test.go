package conclavetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// The owner of a goroutine is the package that it was started for.
func TestStack_Starter(t *testing.T) {
	for _, c := range []struct {
		name  string
		stack stack
		want  string
		ours  bool
	}{
		{"started by go", `goroutine 7 [select]:
github.com/hashicorp/memberlist.(*Memberlist).streamListen(0xc0001)
	/m/net.go:231 +0x1
created by github.com/hashicorp/memberlist.newMemberlist in goroutine 1
	/m/memberlist.go:240 +0x1`, "github.com/hashicorp/memberlist", true},
		{"started with labels", `goroutine 8 [chan receive]:
runtime.gopark(0x1)
	/go/proc.go:1 +0x1
github.com/conclave-go/conclave/cluster/replica.(*Replica).loop(0xc0001)
	/c/loop.go:20 +0x1
github.com/conclave-go/conclave/cluster.(*Member).routine.func1.1({0x1, 0x2})
	/c/member.go:133 +0x1
runtime/pprof.Do({0x1, 0x2}, {0x3}, 0xc0002)
	/go/runtime.go:51 +0x1
github.com/conclave-go/conclave/cluster.(*Member).routine.func1()
	/c/member.go:133 +0x1
sync.(*WaitGroup).Go.func1()
	/go/waitgroup.go:258 +0x1
created by sync.(*WaitGroup).Go in goroutine 1
	/go/waitgroup.go:237 +0x1`, "github.com/conclave-go/conclave/cluster", true},
		{"package with a major version", `goroutine 9 [select]:
github.com/cockroachdb/pebble/v2.(*cleanupManager).mainLoop(0xc0001)
	/p/obsolete.go:1 +0x1
created by github.com/cockroachdb/pebble/v2.openCleanupManager in goroutine 1
	/p/obsolete.go:1 +0x1`, "github.com/cockroachdb/pebble/v2", true},
		{"of the test, inside a call", `goroutine 10 [select]:
github.com/conclave-go/conclave.(*FencedLock).Lock(0xc0001, {0x1, 0x2})
	/c/lock.go:100 +0x1
example.com/shop.(*Till).run(0xc0001)
	/s/till.go:10 +0x1
sync.(*WaitGroup).Go.func1()
	/go/waitgroup.go:258 +0x1
created by sync.(*WaitGroup).Go in goroutine 1
	/go/waitgroup.go:237 +0x1`, "example.com/shop", false},
		{"of a test of this module", `goroutine 11 [select]:
github.com/conclave-go/conclave/conclavetest_test.queue.func1()
	/c/group_test.go:40 +0x1
created by github.com/conclave-go/conclave/conclavetest_test.queue in goroutine 1
	/c/group_test.go:38 +0x1`, "github.com/conclave-go/conclave/conclavetest_test", false},
		{"package with a similar name", `goroutine 12 [select]:
github.com/conclave-go/conclaves.run()
	/c/run.go:40 +0x1
created by main.main in goroutine 1
	/c/main.go:38 +0x1`, "github.com/conclave-go/conclaves", false},
	} {
		if got := c.stack.starter(); got != c.want || ours(got) != c.ours {
			t.Errorf("%s: started for %q, ours %t", c.name, got, ours(got))
		}
	}
}

func block(begun chan<- struct{}, end <-chan struct{}) {
	close(begun)
	<-end
}

// A goroutine of this package stands for one that a node has left behind.
func TestLeaked(t *testing.T) {
	before := goroutines()
	begun, end := make(chan struct{}), make(chan struct{})
	go block(begun, end)
	<-begun
	left := leaked(before, 0)
	if len(left) != 1 || !strings.Contains(left[0], "conclavetest.block") {
		t.Errorf("not reported:\n%s", strings.Join(left, "\n\n"))
	}
	if left := leaked(goroutines(), 0); len(left) > 0 {
		t.Errorf("reported although it existed before:\n%s", strings.Join(left, "\n\n"))
	}

	node, err := conclave.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if left := leaked(before, 0); len(left) > 0 {
		t.Errorf("reported while a node runs:\n%s", strings.Join(left, "\n\n"))
	}
	if err := node.Close(t.Context()); err != nil {
		t.Error(err)
	}
	close(end)
	if left := leaked(before, 10*time.Second); len(left) > 0 {
		t.Errorf("a closed node has left:\n%s", strings.Join(left, "\n\n"))
	}
}

// errorsOf notes the errors of a test.
type errorsOf struct {
	testing.TB
	texts []string
}

func (e *errorsOf) Errorf(format string, args ...any) {
	e.texts = append(e.texts, fmt.Sprintf(format, args...))
}

// A cleanup whose nodes do not end reports their goroutines.
func TestEnds(t *testing.T) {
	seen := &errorsOf{TB: t}
	if !ends(seen, time.Minute, func() {}) || len(seen.texts) > 0 {
		t.Errorf("at once: %q", seen.texts)
	}
	begun, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	if ends(seen, time.Millisecond, func() { block(begun, end) }) {
		t.Error("reported as ended")
	}
	if len(seen.texts) != 1 || !strings.Contains(seen.texts[0], "conclavetest.ends") {
		t.Errorf("%q", seen.texts)
	}
}
