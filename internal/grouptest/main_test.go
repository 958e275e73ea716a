package grouptest

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // they wait for disks and timers more than they compute; -parallel overrides it, and the flag exists
	goleak.VerifyTestMain(m)
}

var long = flag.Bool("long", false, "repeat more, and run what takes long, as .ci/run does")

// often is how often a test repeats something: without -long a part of it.
func often(all int) int {
	if *long {
		return all
	}
	return all * 2 / 5
}
