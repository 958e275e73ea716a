// Package crash tests what a member has after power losses at every operation of its
// disk, and after damage to its files.
package crash

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
