// Package groups tests further groups: those that a group's members have besides the default one.
package groups

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
