// Package crash tests what a member has after power losses at every operation of its
// disk, and after damage to its files.
package crash

import (
	"flag"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

var long = flag.Bool("long", false, "every operation where otherwise some are left out, as .ci/run does")

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // each power loss opens nodes on a copy of the disks, and keeps little of it
	goleak.VerifyTestMain(m)
}
