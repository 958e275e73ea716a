// Package process tests groups whose members are processes of their own, which the
// tests kill and stop.
package process

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("CONCLAVE_TEST_PROCESS") != "" {
		os.Exit(runMember())
	}
	_ = flag.Set("test.parallel", "8") // they wait for processes and timers; -parallel overrides it, and the flag exists
	goleak.VerifyTestMain(m)
}
