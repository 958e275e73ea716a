package grouptest

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// hangs are tests that hang in a bubble in different ways, after a failure.
var hangs = map[string]func(g *Group){
	"mutex": func(g *Group) {
		var mu sync.Mutex
		mu.Lock()
		g.T.Cleanup(func() { mu.Lock() }) // the one before is held for ever
		g.T.Fatal("what went wrong first")
	},
	"operating system": func(g *Group) {
		g.T.Error("what went wrong first")
		r, w, err := os.Pipe()
		Must(g.T, err)
		defer w.Close()
		_, _ = r.Read(make([]byte, 1))
	},
}

// A bubble that hangs ends its process, with the failure that came first and the goroutines
// that keep it from ending.
func TestWatchdog(t *testing.T) {
	if how := os.Getenv("CONCLAVE_TEST_HANG"); how != "" {
		w := newWatchdog()
		w.every, w.hung = 200*time.Millisecond, 3
		inBubble(t, w, 1, hangs[how], nil)
		return
	}
	for how, want := range map[string][]string{
		"mutex":            {"TestWatchdog: the bubble hangs", "sync.(*Mutex).Lock"},
		"operating system": {"TestWatchdog: the bubble hangs", "IO wait", "os.(*File).Read"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			program, err := os.Executable()
			Must(t, err)
			cmd := exec.CommandContext(Bounded(t), program, "-test.run=^TestWatchdog$")
			cmd.Env = append(os.Environ(), "CONCLAVE_TEST_HANG="+how)
			output, err := cmd.CombinedOutput()
			if err == nil {
				t.Error("the process succeeded")
			}
			for _, part := range append(want, "the first failure: what went wrong first", "watchdog_test.go:") {
				if !strings.Contains(string(output), part) {
					t.Errorf("%q is missing in:\n%s", part, output)
				}
			}
			if strings.Contains(string(output), "(durable)") {
				t.Errorf("the report has goroutines that keep no time from passing:\n%s", output)
			}
		})
	}
}
