package conclave_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // the longest wait for TTLs; -parallel overrides it, and the flag exists
	goleak.VerifyTestMain(m)
}
