package sim

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// group is the number of the only group.
const group = 0

var quiet = slog.New(slog.DiscardHandler)
