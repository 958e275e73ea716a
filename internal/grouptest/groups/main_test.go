// Package groups tests further groups: those that a group's members have besides the default one.
package groups

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // they wait for TTLs and elections more than they compute; -parallel overrides it, and the flag exists
	goleak.VerifyTestMain(m)
}
