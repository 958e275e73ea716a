// Package process tests groups whose members are processes of their own, which the
// tests kill and stop.
package process

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("CONCLAVE_TEST_PROCESS") != "" {
		os.Exit(runMember())
	}
	goleak.VerifyTestMain(m)
}
