// Package virtualtime tests groups of whole nodes in bubbles of testing/synctest.
// Time passes only when every goroutine waits, so that a test can check when
// something happens; and a bubble ends only when every goroutine of the nodes has
// ended. The order in which goroutines run still differs between runs.
package virtualtime

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

const (
	heartbeat = grouptest.BubbleHeartbeat
	election  = grouptest.BubbleElection
	ttl       = grouptest.BubbleTTL
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // groups in virtual time allocate much garbage and keep little
	os.Exit(m.Run())
}

var long = flag.Bool("long", false, "repeat more, as .ci/run does, and run a group for more hours")

// often is how often a test repeats something: without -long a part of it, and less under the race detector.
func often(all int) int {
	switch {
	case *long:
		return all
	case testing.Short():
		return all / 6
	}
	return all * 2 / 5
}

// skipIfShort leaves a test out of the race detector's run. Those that call it are two thirds of its time here, and reach
// no statement outside the machine and the core, which start no goroutines, but for six, that other tests of groups do
// not reach under the detector (measured with -coverpkg for each test by itself; not for RegistrationRefused, OfIdleGroup and StaleReadOfGroupThatWasLeft,
// which take a minute there).
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("the race detector sees the same in other tests")
	}
}

// rareHeartbeats is for tests of many minutes, in which heartbeats are what computes most.
var rareHeartbeats = grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
	c.HeartbeatInterval *= 5
	c.ElectionTimeout *= 5
})

// pass lets virtual time pass.
func pass(d time.Duration) { grouptest.Pass(d) }

// wantBetween checks when something happened.
func wantBetween(t testing.TB, what string, at, from, to time.Time) {
	t.Helper()
	if at.Before(from) || at.After(to) {
		t.Errorf("%s at %v: %v after the earliest time, %v before the latest", what, at.Format(time.TimeOnly+".000"), at.Sub(from), to.Sub(at))
	}
}

// wantAt checks when something happened, to the nanosecond.
func wantAt(t testing.TB, what string, at, want time.Time) {
	t.Helper()
	wantBetween(t, what, at, want, want)
}
