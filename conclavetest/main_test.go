package conclavetest_test

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // the longest wait for the sessions of killed nodes; -parallel overrides it, and the flag exists
	os.Exit(m.Run())
}
